"""Writers for the file forms that the cases need: safetensors and BPE files."""
import json
import struct
from collections import OrderedDict

from tiny_model import CONFIG

ST_TYPE = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "uint8": "U8",
           "bool": "BOOL"}


def st_raw(path, header, data=b""):
    """header: bytes as they are, or an object to be written as JSON."""
    if not isinstance(header, bytes):
        header = json.dumps(header, separators=(",", ":")).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def st_save(path, tensors, metadata=None):
    """A correct safetensors file, tensors in the given order; (type, shape, bytes) stands for a type numpy lacks."""
    header, data = OrderedDict(), b""
    header["__metadata__"] = metadata or {"format": "pt"}
    for name, a in tensors.items():
        kind, shape, raw = a if isinstance(a, tuple) else (ST_TYPE[a.dtype.name], a.shape, a.tobytes())
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    st_raw(path, text + b" " * (-len(text) % 8), data)


def model(folder, tensors, config=CONFIG, name="model.safetensors"):
    st_save(folder / name, tensors)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


BPE_MERGES = [("#", "#"), ("a", "b"), ("ab", "c"), ("\u0120", "ab"), ("##", "##"), ("\u0120", "\u0120")]


def byte_letters():
    """GPT-2's printable stand-in for each byte, in id order 0 ... 255."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(256 - len(plain))]


def bpe_vocab(merges):
    tokens = byte_letters() + [a + b for a, b in merges] + ["<|endoftext|>"]
    return {t: i for i, t in enumerate(tokens)}


def tokenizer_json(path, merges, vocab):
    special = {"id": len(vocab) - 1, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False, "special": True}
    pre = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    bpe = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
           "vocab": vocab, "merges": merges}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [special],
                                "normalizer": None, "pre_tokenizer": pre, "post_processor": None, "decoder": pre,
                                "model": bpe}, ensure_ascii=False), encoding="utf-8")
