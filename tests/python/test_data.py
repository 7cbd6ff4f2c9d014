"""Data as a user gives it: folders, patterns, JSONL, weights, documents that do not see each other, and what is refused."""
import json
import os
import subprocess
import time

import numpy as np
import pytest

from cli_support import BINARY, fails, lamina, ok, ok_json, write_config, write_ids, write_text, write_tiny

END = 96


def metrics_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def write_documents(path, documents, kind="<u2"):
    """Ids of documents, each ended by the id of the end."""
    ids = [i for document in documents for i in [*document, END]]
    path.write_bytes(np.array(ids, kind).tobytes())
    return path


def random_documents(count, seed, longest=12):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, END, rng.integers(1, longest)).tolist() for _ in range(count)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    ok("tokenize", "train", "--data", write_text(folder / "text.txt"), "--vocab-size", "280", "--out", folder)
    return folder


@pytest.mark.tiny
def test_jsonl_is_documents(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("the sea is never full")
    (tmp_path / "b.jsonl").write_text('{"text": "the sea is never full"}\r\n\n{"text": "", "n": 1}\n{"text": "a cat"}')
    write_config(tmp_path / "config.json", vocab_size=280)
    encode = lambda text: json.loads(
        lamina("tokenize", "encode", "--tokenizer", tokenizer, "--json", stdin=text.encode()).stdout)["ids"]
    sea, cat = encode("the sea is never full"), encode("a cat")
    args = ["train", "--model", tmp_path / "config.json", "--tokenizer", tokenizer, "--valid-fraction", "0", "--seq", "4",
            "--epochs", "1"]
    result = ok_json(*args, "--data", tmp_path, "--out", tmp_path / "run")
    assert result["tokens"] == len(sea) * 2 + len(cat) + 3 - 1
    fields = tmp_path / "fields.jsonl"
    fields.write_text('{"text": 1, "body": "the sea is never full"}\n')
    assert ok_json(*args, "--data", fields, "--text-field", "body", "--out", tmp_path / "run2")["tokens"] == len(sea)
    fails(1, ["fields.jsonl: line 1", '"text"', "1"], *args, "--data", fields, "--out", tmp_path / "run3")
    fields.write_text('{"text": "a"}\n[1]\n')
    fails(1, ["fields.jsonl: line 2", "object"], *args, "--data", fields, "--out", tmp_path / "run3")
    fields.write_text('{"text": "a"}\n{"text": "a"\n')
    fails(1, ["fields.jsonl: line 2"], *args, "--data", fields, "--out", tmp_path / "run3")
    fails(1, ["fields.jsonl: line 2"], "tokenize", "train", "--data", fields, "--vocab-size", "260", "--out", tmp_path / "tok")
    fails(1, ["fields.jsonl: line 2"], "eval", tmp_path / "run", "--data", fields)
    assert not (tmp_path / "run3").exists() and not (tmp_path / "tok").exists()


@pytest.mark.tiny
def test_weighted_sources(tmp_path):
    """Steps are full, an epoch is as long as all windows together, paths may hold "="."""
    write_config(tmp_path / "config.json")
    a, b = tmp_path / "a=b.bin", tmp_path / "b.bin"
    a.write_bytes(np.full(321, 1, "<u2").tobytes())
    b.write_bytes(np.full(161, 2, "<u2").tobytes())
    base = ["train", "--model", tmp_path / "config.json", "--batch", "4", "--lr", "1e-2"]
    result = ok_json(*base, "--data", f"{a}=1", f"{b}=3", "--out", tmp_path / "mix")
    assert result["steps"] == 8  # 20 + 10 windows of 16, 4 a step
    assert all(line["tokens"] == 64 for line in metrics_of(tmp_path / "mix"))
    plain = ok_json(*base, "--data", a, "--data", b, "--out", tmp_path / "plain")
    assert plain["tokens"] == 321 + 161 - 1
    said = json.loads((tmp_path / "mix" / "lamina.json").read_text())
    assert said["options"]["data"] == [f"{a}=1", f"{b}=3"]
    for wrong in ("0", "-1", "nan"):
        fails(2, ["--data", "b.bin", wrong], *base, "--data", f"{b}={wrong}", "--out", tmp_path / "x")
    short = write_ids(tmp_path / "short.bin", 10)
    fails(1, ["short.bin", "17", "10"], *base, "--data", f"{short}=1", "--data", b, "--out", tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.tiny
def test_a_corpus_becomes_a_token_file(tokenizer, tmp_path):
    """The ids of `tokenize encode --data` are those that training on the text itself sees."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    write_text(corpus / "a.txt", 60)
    (corpus / "b.jsonl").write_text('{"text": "the sea"}\n{"text": ""}\n{"text": "<|endoftext|>"}\n')
    encode = ["tokenize", "encode", "--tokenizer", tokenizer, "--data", corpus]
    made = [ok_json(*encode, "--out", tmp_path / f"{threads}.bin", "--threads", threads) for threads in (1, 2)]
    assert made[0]["document_count"] == 3 and made[0]["special_count"] == 1
    assert (tmp_path / "1.bin").read_bytes() == (tmp_path / "2.bin").read_bytes()
    assert (tmp_path / "1.bin").stat().st_size == 1024 + 2 * made[0]["id_count"]
    write_config(tmp_path / "config.json", vocab_size=280)
    train = ["train", "--model", tmp_path / "config.json", "--tokenizer", tokenizer, "--valid-fraction", "0", "--steps", "3"]
    ok(*train, "--data", corpus, "--out", tmp_path / "text")
    ok(*train, "--data", tmp_path / "1.bin", "--out", tmp_path / "ids")
    assert (tmp_path / "text" / "model.safetensors").read_bytes() == (tmp_path / "ids" / "model.safetensors").read_bytes()
    fails(2, ["--out"], *encode)
    fails(2, ["--data", "--file"], *encode, "--file", "x", "--out", tmp_path / "x.bin")
    (corpus / "c.jsonl").write_text("[]\n")
    fails(1, ["c.jsonl: line 1"], *encode, "--out", tmp_path / "x.bin")
    assert not (tmp_path / "x.bin").exists() and not list(tmp_path.glob(".*tmp"))


def test_equal_seeds_give_equal_mixes(tmp_path):
    write_config(tmp_path / "config.json")
    a, b = write_ids(tmp_path / "a.bin", 400), write_ids(tmp_path / "b.bin", 200, vocab=50)
    losses = {}
    for name, seed in (("x", 1), ("y", 1), ("z", 2)):
        ok("train", "--model", tmp_path / "config.json", "--data", f"{a}=0.3", "--data", f"{b}=0.7", "--seed", seed, "--out",
           tmp_path / name, "--steps", "6", "--batch", "4")
        losses[name] = [line["loss"] for line in metrics_of(tmp_path / name)]
    assert losses["x"] == losses["y"] != losses["z"]


@pytest.mark.tiny
def test_t19_isolated_documents_are_documents_alone(tmp_path):
    """The loss over packed documents is the token-weighted loss of each alone, for files of ids; else it is another."""
    model = write_tiny(tmp_path / "model")
    documents = random_documents(12, seed=1)
    packed = ok_json("eval", model, "--data", write_documents(tmp_path / "all.bin", documents), "--seq", "16",
                     "--isolate-documents")
    mixed = ok_json("eval", model, "--data", tmp_path / "all.bin", "--seq", "16")
    total = tokens = 0
    position = 0
    for document in documents:  # a window's border cuts a document, which begins again behind it
        ids = [*document, END]
        while len(ids) > 1:
            room = 16 - position % 16
            part, rest = ids[: room + 1], ids[room:]
            alone = ok_json("eval", model, "--data", _ids(tmp_path / "one.bin", part), "--seq", "16")
            total, tokens = total + alone["loss"] * alone["tokens"], tokens + alone["tokens"]
            position += len(part) - 1
            ids = rest if len(part) == room + 1 else ids[-1:]
        position += 1  # the end itself, behind which nothing is a target
    assert packed["tokens"] == tokens == sum(len(document) for document in documents)
    assert packed["loss"] == pytest.approx(total / tokens, rel=1e-6)
    assert abs(mixed["loss"] - packed["loss"]) > 1e-4
    assert mixed["tokens"] == tokens + len(documents) - 1


def _ids(path, ids):
    path.write_bytes(np.array(ids, "<u2").tobytes())
    return path


@pytest.mark.tiny
def test_training_on_isolated_documents(tokenizer, tmp_path):
    """Text, JSONL and ids; no target is lost but the first of each document."""
    write_config(tmp_path / "config.json")
    documents = random_documents(20, seed=2)
    data = write_documents(tmp_path / "all.bin", documents)
    args = ["--model", tmp_path / "config.json", "--data", data, "--isolate-documents", "--epochs", "1"]
    result = ok_json("train", *args, "--out", tmp_path / "run")
    assert result["tokens"] == sum(len(document) for document in documents)
    assert json.loads((tmp_path / "run" / "lamina.json").read_text())["options"]["isolate_documents"] is True
    again = ok_json("train", *args, "--out", tmp_path / "accumulated", "--batch", "1", "--accumulate", "4")
    assert again["loss"] == pytest.approx(result["loss"], rel=1e-5)
    none = _ids(tmp_path / "late.bin", [96] * 48 + [5, 6, 7, 8])  # a step in order that has no target: not an error
    done = lamina("train", "--model", tmp_path / "config.json", "--data", none, "--isolate-documents", "--batch", "1", "--seq",
                  "16", "--out", tmp_path / "late")
    assert done.returncode == 0 and done.stderr.count(b"nothing to learn") == 3, done.stderr
    ends = _ids(tmp_path / "ends.bin", [96] * 200)
    for data in [["--data", ends], ["--data", tmp_path / "all.bin", "--valid", ends]]:
        fails(1, ["nothing to predict"], "train", "--model", tmp_path / "config.json", *data, "--isolate-documents", "--out",
              tmp_path / "none")
    write_config(tmp_path / "config.json", eos_token_id=None)
    fails(1, ["--isolate-documents", "eos_token_id"], "train", *args, "--out", tmp_path / "none")
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": f"the sea {i}"}) + "\n" for i in range(40)))
    ok("train", "--model", write_config(tmp_path / "text.json", vocab_size=280), "--tokenizer", tokenizer, "--data",
       tmp_path / "t.jsonl", "--isolate-documents", "--steps", "2", "--out", tmp_path / "text")


@pytest.mark.tiny
def test_a_pipe_is_no_data(tmp_path):
    write_config(tmp_path / "config.json")
    os.mkfifo(tmp_path / "pipe.bin")
    for path in (tmp_path / "pipe.bin", "/dev/null", "/dev/stdin"):
        fails(1, [path, "pipe or device"], "train", "--model", tmp_path / "config.json", "--data", path, "--out",
              tmp_path / "run", stdin=b"text")
    assert not (tmp_path / "run").exists()


@pytest.mark.tiny
def test_t14_places_of_bad_ids_behind_a_header(tmp_path):
    write_config(tmp_path / "config.json")
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, 100
    ids = np.arange(100) % 97
    ids[55] = 97
    (tmp_path / "h.bin").write_bytes(header.tobytes() + ids.astype("<u2").tobytes())
    fails(1, ["h.bin", "position 55", f"byte {1024 + 110}", "97"], "train", "--model", tmp_path / "config.json", "--data",
          tmp_path / "h.bin", "--out", tmp_path / "run")


def test_t17_every_target_once_an_epoch(tmp_path):
    """99 targets of 100 ids for any batch and accumulation; the short window is used, nothing is dropped."""
    write_config(tmp_path / "config.json")
    data = write_ids(tmp_path / "ids.bin", 100)
    for batch, accumulate in ((2, 4), (8, 1), (3, 2), (13, 1)):
        result = ok_json("train", "--model", tmp_path / "config.json", "--data", data, "--seq", "8", "--batch", batch,
                         "--accumulate", accumulate, "--epochs", "1", "--out", tmp_path / f"run{batch}")
        lines = metrics_of(tmp_path / f"run{batch}")
        assert result["tokens"] == 99 and len(lines) == -(-13 // (batch * accumulate))
    lines = metrics_of(tmp_path / "run2")
    assert sum(line["tokens"] for line in lines) == 99 and lines[1]["tokens"] in (40, 35)


def peak_of(*command):
    """Largest resident memory of a run, in bytes, from the kernel's count."""
    process = subprocess.Popen([str(BINARY), *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    peak = 0
    while process.poll() is None:
        try:
            status = open(f"/proc/{process.pid}/status", encoding="ascii").read()
            peak = max([peak, *(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))])
        except (OSError, ProcessLookupError):
            break
        time.sleep(0.005)
    process.communicate()
    assert process.returncode == 0
    return peak


def test_memory_does_not_grow_with_the_file(tmp_path):
    """A file of 512 MB of ids (sparse on disk) trains in the memory of one of 64 KB."""
    write_config(tmp_path / "config.json")
    peaks = []
    for size in (1 << 16, 1 << 29):
        with open(tmp_path / "big.bin", "wb") as file:
            file.truncate(size)
        peaks.append(peak_of("train", "--model", tmp_path / "config.json", "--data", tmp_path / "big.bin", "--out",
                             tmp_path / str(size), "--steps", "200", "--batch", "16"))
    assert peaks[1] - peaks[0] < 16 << 20, peaks
