#!/usr/bin/env python3
"""Writes the small input files that the tests of files and names use (README.md).

    python3 make_cases.py OUT            every file
    python3 make_cases.py OUT C8 T10     tiny/ and these cases only

Standard library and numpy only; the same bytes on every run. OUT/manifest.json lists what has to happen with each:
  {"case": "C8", "path": "C8/range_too_short.safetensors", "expect": "error", "names": ["probe.weight", "4000000"]}
expect: "ok" (exit 0), "warn" (exit 0 and a warning) or "error" (exit 1). names: what the message has to contain, letter
case aside; a number counts only as a whole number. A model that must load equals tiny/ unless its note says otherwise.
"""
import json
import struct
import sys
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import numpy as np

from file_forms import (BPE_MERGES, Storage, View, bf16, bpe_vocab, call_pickle, model, ms_entry, st_raw, st_save,
                        tokenizer_json, torch_legacy, torch_zip, view_of)
from tiny_model import CONFIG, CONTEXT, LAYERS, VOCAB, WIDTH, prefixed, random_letters, reference, tiny, token_stream

CASES = {}
PROBE = "probe.weight"
ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def case(function):
    CASES[function.__name__] = function
    return function


class Out:
    """The folder of one case and the shared manifest."""

    def __init__(self, root, name, manifest):
        self.folder, self.name, self.manifest = root / name, name, manifest
        self.folder.mkdir(parents=True, exist_ok=True)

    def expect(self, path, expect, names=(), note=""):
        """Adds one input to the manifest and says where to write it."""
        entry = {"case": self.name, "path": f"{self.name}/{path}", "expect": expect, "names": [str(n) for n in names]}
        self.manifest.append({**entry, **({"note": note} if note else {})})
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        return self.folder / path


# ---- tokenizer and token files --------------------------------------------------------------------------------------

@case
def T1(o):
    path = o.expect("random_letters.txt", "ok", note="200 000 letters a-z without a break")
    path.write_bytes(random_letters(200_000))


@case
def T3(o):
    for name, bad in {"surrogate": b"\xed\xa0\x80", "byte_ff": b"\xff", "overlong": b"\xc0\xaf",
                      "above_10ffff": b"\xf4\x90\x80\x80"}.items():
        o.expect(f"{name}.txt", "error", [f"{name}.txt", "byte 2", f"{bad[0]:02x}"]).write_bytes(b"ab" + bad + b"cd\n")
    o.expect("cut_at_end.txt", "error", ["cut_at_end.txt", "byte 2", "c3"]).write_bytes(b"ab\xc3")
    o.expect("sound.txt", "ok").write_bytes(b"ab\xc3\xa9cd\n")


@case
def T10(o):
    vocab, lines = bpe_vocab(BPE_MERGES), [f"{a} {b}" for a, b in BPE_MERGES]
    pairs = [list(m) for m in BPE_MERGES]

    def two_files(name, text, *expect):
        folder = o.expect(f"{name}/merges.txt", *expect).parent
        (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
        (folder / "merges.txt").write_bytes(text.encode())

    two_files("version_line", "#version: 0.2\n" + "\n".join(lines) + "\n", "ok")
    two_files("no_version_line", "\n".join(lines) + "\n", "ok", [], "the first merge itself starts with #")
    two_files("crlf_no_last_newline", "#version: 0.2\r\n" + "\r\n".join(lines), "ok")
    two_files("no_merges", "#version: 0.2\n", "error", ["merges.txt", "0 merges"])
    tokenizer_json(o.expect("merges_as_strings/tokenizer.json", "ok"), lines, vocab)
    tokenizer_json(o.expect("merges_as_pairs/tokenizer.json", "ok"), pairs, vocab)
    bad = o.expect("merge_of_one_part/tokenizer.json", "error", ["tokenizer.json", "merge 2"], "counted from 0")
    tokenizer_json(bad, pairs[:2] + [["abc"]] + pairs[3:], vocab)


@case
def T14(o):
    ids = token_stream(20_000)
    o.expect("sound_u16.bin", "ok", note="largest id 96").write_bytes(ids.astype("<u2").tobytes())
    for name, kind, at, bad in [("too_large_u16", "<u2", 12_345, 97), ("last_place_u16", "<u2", 19_999, 65_535),
                                ("negative_i32", "<i4", 7, -1), ("too_large_u32", "<u4", 7, 2**32 - 1)]:
        wrong = ids.copy()
        wrong[at] = bad
        o.expect(f"{name}.bin", "error", [f"{name}.bin", at, bad, 97]).write_bytes(wrong.astype(kind).tobytes())


@case
def T16(o):
    def put(name, kind, n, cut, *expect):
        raw = token_stream(n).astype(kind).tobytes()
        o.expect(name, *expect).write_bytes(raw[:len(raw) - cut])

    for n in (0, 1, 16):
        put(f"{n}_tokens_u16.bin", "<u2", n, 0, "error", [17, n])
    put("17_tokens_u16.bin", "<u2", 17, 0, "ok", [], "exactly one window of T = 16")
    put("odd_size_u16.bin", "<u2", 41, 1, "error", [81, 2])
    put("size_not_of_4_u32.bin", "<u4", 41, 2, "error", [162, 4])


# ---- checkpoint files -----------------------------------------------------------------------------------------------

@case
def C1(o):
    w = prefixed(tiny())
    same, other = OrderedDict(w), OrderedDict(w)
    same["lm_head.weight"] = w["transformer.wte.weight"]
    other["lm_head.weight"] = tiny(untied=True)["lm_head.weight"]
    model(o.expect("both_equal", "ok", [], "one table after loading, tied"), same)
    model(o.expect("both_differ", "error", ["wte.weight", "lm_head.weight", "tie_word_embeddings"]), other)


@case
def C3(o):
    first, second = json.dumps(ONE), json.dumps({**ONE, "data_offsets": [4, 8]})

    def put(name, text, size, names):
        st_raw(o.expect(f"{name}.safetensors", "error", ["duplicate", PROBE, *names]), text.encode(), b"\0" * size)

    put("same_range", f'{{"{PROBE}":{first},"{PROBE}":{first}}}', 4, [])
    put("other_range", f'{{"{PROBE}":{first},"{PROBE}":{second}}}', 8, [])
    put("shape_twice", f'{{"{PROBE}":{{"dtype":"F32","shape":[1],"shape":[2],"data_offsets":[0,8]}}}}', 8, ["shape"])


@case
def C4(o):
    big = 101 << 20
    path = o.expect("length_101_mib.safetensors", "error", [big, 100_000_000], "a sparse file of that size")
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", big) + b"{")
        f.truncate(8 + big)
    for name, n in [("length_2_64_minus_1", 2**64 - 1), ("length_2_63", 2**63), ("length_one_past_end", 3)]:
        o.expect(f"{name}.safetensors", "error", [n, 10]).write_bytes(struct.pack("<Q", n) + b"{}")
    o.expect("0_bytes.safetensors", "error", [0, 8]).write_bytes(b"")
    o.expect("7_bytes.safetensors", "error", [7, 8]).write_bytes(b"\x02" + b"\0" * 6)


@case
def C5(o):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0123456789abcdef" * 4 + "\nsize 548105171\n"
    page = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body></body></html>\n"
    for file in ("model.safetensors", "pytorch_model.bin"):
        o.expect(f"lfs/{file}", "error", [file, "Git LFS pointer", 548105171]).write_text(pointer)
        o.expect(f"html/{file}", "error", [file, "not a model file", "html"]).write_text(page)


@case
def C7(o):
    for name, meta in [("absent", "absent"), ("empty", {}), ("null", None), ("no_format", {"step": "7"})]:
        header = {} if meta == "absent" else {"__metadata__": meta}
        header[PROBE] = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        st_raw(o.expect(f"{name}.safetensors", "ok", [], f"{PROBE} = [1, 2]"), header, struct.pack("<2f", 1, 2))


@case
def C8(o):
    def put(name, shape, offsets, size, names, note=""):
        header = {PROBE: {"dtype": "F32", "shape": shape, "data_offsets": offsets}}
        st_raw(o.expect(f"{name}.safetensors", "error", [PROBE, *names], note), header, b"\0" * size)

    put("range_too_short", [1000, 1000], [0, 4], 4, [4_000_000, 4])
    put("range_too_long", [1], [0, 8], 8, [4, 8])
    put("range_past_end", [1], [0, 4], 3, [4, 3], "3 bytes of data follow the header")
    put("range_backwards", [1], [4, 0], 4, [])


def sharded(folder, edit=lambda shards, index: None):
    """Tiny in three shards; edit(shards, index) spoils the two dictionaries before they are written."""
    names = list(prefixed(tiny()).items())
    files = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    shards = {f: OrderedDict(names[i * 10:i * 10 + 10]) for i, f in enumerate(files)}
    index = {n: f for f, part in shards.items() for n in part}
    edit(shards, index)
    folder.mkdir(parents=True, exist_ok=True)
    for f, part in shards.items():
        st_save(folder / f, part)
    text = json.dumps({"metadata": {"total_size": sum(a.nbytes for _, a in names)}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")


@case
def C14(o):
    second, stray = "model-00002-of-00003.safetensors", "model-00004-of-00004.safetensors"
    lost, table = "transformer.h.1.ln_1.weight", "transformer.wte.weight"

    def rename(shards, index):
        part = shards[index[lost]]
        shards[index[lost]] = OrderedDict((n + "x" if n == lost else n, a) for n, a in part.items())

    def add_stray(shards, index):
        shards[stray] = OrderedDict(old=np.ones(2, np.float32))

    def twice(shards, index):
        shards["model-00003-of-00003.safetensors"][table] = np.zeros((VOCAB, WIDTH), np.float32)

    sharded(o.expect("sound", "ok"))
    sharded(o.expect("shard_missing", "error", [second]), lambda shards, index: shards.pop(second))
    sharded(o.expect("tensor_missing", "error", [lost]), rename)
    sharded(o.expect("stray_shard", "warn", [stray]), add_stray)
    sharded(o.expect("tensor_in_two_shards", "error", [table, "00001-of-00003", "00003-of-00003"]), twice)


@case
def C17(o):
    state = OrderedDict((n, view_of(a)) for n, a in prefixed(tiny()).items())

    def put(name, write, expect, *args, **kw):
        path = o.expect(f"{name}/pytorch_model.bin", *expect)
        write(path, *args, **kw)
        (path.parent / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")

    for p in (2, 3, 4, 5):
        put(f"zip_protocol_{p}", torch_zip, ["ok"], state, protocol=p)
    put("legacy_protocol_2", torch_legacy, ["ok"], state)
    trainer = {"model": state, "iter_num": 7, "best": 1.5, "flags": [True, None, (1, "x")]}
    put("trainer_file", torch_zip, ["ok", [], "the state dict sits under the key model"], trainer)
    put("holds_a_namespace", torch_zip, ["error", ["argparse.Namespace"]], {"model": state, "args": Namespace(lr=1.0)})
    refused = ["error", ["posix.mkdir"], "no folder pickle_was_executed may appear"]
    evil = call_pickle("posix", "mkdir", "pickle_was_executed")
    put("calls_mkdir_zip", torch_zip, refused, data_pkl=evil)
    put("calls_mkdir_legacy", torch_legacy, refused, data_pkl=evil)
    put("calls_getattr", torch_zip, ["error", ["getattr"]],
        data_pkl=b"\x80\x02c__builtin__\ngetattr\nctorch\nsave\nX\x08\0\0\0__name__\x86R.")


@case
def C18(o):
    a = np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -0.125]], np.float32)
    raw = {"Float16": a.astype(np.float16).tobytes(), "Float32": a.tobytes(), "BFloat16": bf16(a),
           "Int32": a.astype(np.int32).tobytes()}
    note = "w_float16, w_float32, w_bfloat16 = [[1,-2,.5],[.25,3,-.125]]; w_int32 = [[1,-2,0],[0,3,0]]"
    for name, spell in [("plain", lambda t: t), ("dotted", lambda t: "mindspore." + t.lower()),
                        ("dotted_upper", lambda t: "mindspore." + t)]:
        body = b"".join(ms_entry("w_" + t.lower(), spell(t), (2, 3), r) for t, r in raw.items())
        o.expect(f"{name}.ckpt", "ok", [], note).write_bytes(body)
    o.expect("unknown_type.ckpt", "error", [PROBE, "Float8"]).write_bytes(ms_entry(PROBE, "Float8", (2, 3), b"\0" * 6))
    o.expect("too_few_bytes.ckpt", "error", [PROBE, 24, 20]).write_bytes(ms_entry(PROBE, "Float32", (2, 3), b"\0" * 20))


@case
def C19(o):
    words, note = np.arange(65_536, dtype="<u2").tobytes(), "element i is the 16-bit word i"
    st_save(o.expect("every_word.safetensors", "ok", [], note), {PROBE: ("BF16", (256, 256), words)})
    view = View(Storage("BFloat16Storage", words, 65_536), (256, 256))
    torch_zip(o.expect("every_word.bin", "ok", [], note), {PROBE: view})
    o.expect("every_word.ckpt", "ok", [], note).write_bytes(ms_entry(PROBE, "BFloat16", (256, 256), words))


# ---- names and conversion -------------------------------------------------------------------------------------------

@case
def M1(o):
    w = tiny()
    model(o.expect("with_prefix", "ok", ["28 of 28"]), prefixed(w))
    model(o.expect("without_prefix", "ok", ["28 of 28"]), w)
    half = OrderedDict(("transformer." + n if i % 2 else n, a) for i, (n, a) in enumerate(w.items()))
    model(o.expect("prefix_on_half", "error", ["transformer.", "wte.weight"]), half)
    both = prefixed(w)
    both["wte.weight"] = w["wte.weight"] + 1
    model(o.expect("one_key_in_both_spellings", "error", ["wte.weight", "transformer.wte.weight"]), both)


@case
def M2(o):
    def with_buffers(kind, size=CONTEXT, name="attn.bias"):
        w = prefixed(tiny())
        for layer in range(LAYERS):
            h = f"transformer.h.{layer}."
            w[h + name] = np.tril(np.ones((size, size), kind)).reshape(1, 1, size, size)
            w[h + "attn.masked_bias"] = np.array(-1e4, np.float32)
        return w

    for kind in ("uint8", "bool", "float32"):
        names = ["attn.bias", "attn.masked_bias"]
        model(o.expect(f"buffers_{kind}", "ok", names, "reported as ignored"), with_buffers(kind))
    model(o.expect("buffer_of_wrong_shape", "error", ["attn.bias", 16, 17]), with_buffers("uint8", size=17))
    model(o.expect("almost_a_buffer", "error", ["attn.bias2"]), with_buffers("uint8", name="attn.bias2"))


@case
def M3(o):
    for name, front in [("orig_mod", "_orig_mod."), ("module", "module."), ("module_orig_mod", "module._orig_mod."),
                        ("orig_mod_module", "_orig_mod.module."), ("each_twice", "_orig_mod.module._orig_mod.module.")]:
        w = OrderedDict((front + n, a) for n, a in prefixed(tiny()).items())
        model(o.expect(name, "ok", ["28 of 28", front]), w)
    inner = OrderedDict((n.replace("h.1.", "h.1._orig_mod."), a) for n, a in prefixed(tiny()).items())
    model(o.expect("wrapper_inside_one_layer", "ok", ["28 of 28", "_orig_mod."]), inner)


@case
def M8(o):
    def put(name, tied, head, *expect):
        w = prefixed(tiny(untied=head))
        if tied and head:
            w["lm_head.weight"] = w["transformer.wte.weight"]
        config = {**CONFIG, "tie_word_embeddings": tied}
        if tied is None:
            del config["tie_word_embeddings"]
        model(o.expect(name, *expect), w, config)

    put("tied_with_head", True, True, "ok")
    put("tied_without_head", True, False, "ok")
    put("untied_with_head", False, True, "ok", [], "equals tiny_untied/")
    put("untied_without_head", False, False, "error", ["lm_head.weight", "tie_word_embeddings"])
    put("flag_absent_without_head", None, False, "ok")


@case
def M10(o):
    for name in ("gelu", "gelu_new", "gelu_pytorch_tanh"):
        config = {**CONFIG, "activation_function": name}
        model(o.expect(name, "ok", [], "logits: tiny/reference.json"), prefixed(tiny()), config)
    model(o.expect("unknown", "error", ["activation_function", "gelu_fancy"]), prefixed(tiny()),
          {**CONFIG, "activation_function": "gelu_fancy"})


@case
def M14(o):
    w = prefixed(tiny())
    lost, kept = "transformer.h.0.ln_1.weight", "transformer.h.1.ln_1.weight"
    renamed = OrderedDict(("old.ln_1.weight" if n == lost else n, a) for n, a in w.items())
    model(o.expect("one_key_shares_a_suffix", "error", [lost, "old.ln_1.weight"]), renamed)
    half = OrderedDict((n, a.astype(np.float16) if n == kept else a) for n, a in w.items())
    model(o.expect("one_tensor_in_f16", "warn", [kept, "F16"]), half)
    short = OrderedDict((n, a[:-1] if n == kept else a) for n, a in w.items())
    model(o.expect("one_shape_wrong", "error", [kept, 16, 15]), short)


@case
def M15(o):
    model(o.expect("three_layers_config_says_two", "error", ["n_layer", 2, 3, "h.2."]), prefixed(tiny(3)))
    model(o.expect("one_layer_config_says_two", "error", ["n_layer", 2, 1, "h.1."]), prefixed(tiny(1)))
    gap = OrderedDict((n.replace("h.1.", "h.2."), a) for n, a in prefixed(tiny()).items())
    model(o.expect("layer_1_missing_layer_2_there", "error", ["h.1.", "h.2."]), gap)
    model(o.expect("three_layers_config_says_three", "ok", ["40 of 40"], "a model of its own"), prefixed(tiny(3)),
          {**CONFIG, "n_layer": 3})


# ---- all of it ------------------------------------------------------------------------------------------------------

def write_tiny(root):
    w = tiny()
    model(root / "tiny", prefixed(w))
    model(root / "tiny_untied", prefixed(tiny(untied=True)), {**CONFIG, "tie_word_embeddings": False})
    (root / "tiny" / "tokens_u16.bin").write_bytes(token_stream(4096).astype("<u2").tobytes())
    (root / "tiny" / "reference.json").write_text(json.dumps(reference(w)) + "\n")


def main(argv, cases):
    if len(argv) < 2 or argv[1].startswith("-") or set(argv[2:]) - set(cases):
        print(f"usage: {Path(argv[0]).name} OUT [CASE ...]   cases with files: {' '.join(cases)}", file=sys.stderr)
        return 2
    root, manifest, chosen = Path(argv[1]), [], argv[2:] or list(cases)
    write_tiny(root)
    for name in chosen:
        cases[name](Out(root, name, manifest))
    (root / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(f"{len(manifest)} inputs of {len(chosen)} cases in {root}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv, CASES))
