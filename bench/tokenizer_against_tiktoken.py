"""Encoding on one thread, Lamina and tiktoken in turn over the same vocabulary, both from a Python string to a list of ids;
and training that vocabulary. Times are processor times; the fastest of each counts. The text is a file (--text), or by
default the Bible that Debian ships (bible-kjv); without it, the documentation of this repository, many times over."""
import argparse
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import tiktoken
from tiktoken_ext.openai_public import r50k_pat_str

import lamina

ROOT = Path(__file__).resolve().parent.parent


def default_text(folder):
    path = folder / "text.txt"
    if shutil.which("bible"):
        path.write_bytes(subprocess.run(["bible", "-f", "gen1:1-rev22:21"], check=True, capture_output=True).stdout)
    else:
        pages = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md")))
        path.write_text(pages * (4_000_000 // len(pages) + 1), encoding="utf-8")
    return path


def tiktoken_of(folder):
    root = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    special = {token["content"]: token["id"] for token in root["added_tokens"]}
    printing = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printing]
    byte_of = {chr(byte): byte for byte in printing} | {chr(256 + i): byte for i, byte in enumerate(rest)}
    ranks = {bytes(byte_of[c] for c in token): i for token, i in root["model"]["vocab"].items() if token not in special}
    return tiktoken.Encoding("same", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens=special)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=ROOT / "build" / "release" / "lamina")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = args.text or default_text(folder)
        start = time.perf_counter()
        subprocess.run([args.program, "tokenize", "train", "--data", path, "--vocab-size", str(args.vocab_size), "--out",
                        folder / "tok"], check=True, capture_output=True)
        train_s = time.perf_counter() - start
        text = path.read_bytes().decode("utf-8")
        theirs, ours = tiktoken_of(folder / "tok"), lamina.Tokenizer.from_pretrained(str(folder / "tok"))
        engines = {"tiktoken": theirs.encode_ordinary, "lamina": ours.encode}
        if engines["tiktoken"](text) != engines["lamina"](text):
            raise SystemExit("the ids differ")
        best = {}
        for _ in range(args.rounds):
            for engine, encode in engines.items():
                start = time.process_time()
                encode(text)
                best[engine] = min(best.get(engine, 1e9), time.process_time() - start)
    size = len(text.encode())
    rate = {engine: size / seconds / 1e6 for engine, seconds in best.items()}
    result = {"text_bytes": size, "vocab_size": args.vocab_size, "train_s": train_s, "encode_mb_per_s": rate,
              "tiktoken_version": tiktoken.__version__, "ratio": rate["lamina"] / rate["tiktoken"]}
    if args.json:
        print(json.dumps(result))
    else:
        print(f"training {args.vocab_size} ids on {size / 1e6:.1f} MB: {train_s:.2f} s; encoding on one thread: lamina "
              f"{rate['lamina']:.1f} MB/s, tiktoken {tiktoken.__version__} {rate['tiktoken']:.1f} MB/s, ratio {result['ratio']:.2f}")


if __name__ == "__main__":
    main()
