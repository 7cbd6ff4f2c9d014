"""Files of weights of other programs: what PyTorch and MindSpore save is read bit by bit, and they load what is written.
Tensors are compared by the hash that `inspect checkpoint --hash` gives to their bytes, in whatever file they are."""
import argparse
import collections
import os
import subprocess
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cli_support import fails, ok, ok_json
from mindspore_support import mindspore_python, needs_mindspore


@pytest.fixture(scope="module")
def rewrite(build_dir):
    def run(source, form, target):
        subprocess.run([build_dir / "tests" / "lamina_rewrite", source, form, target], check=True)
        return target
    return run


def held(path):
    """What the program says of a file: tensors by name, and the rest."""
    said = ok_json("inspect", "checkpoint", path, "--hash")
    tensors = {t["name"]: (t["dtype"], t["shape"], t["bytes"], t["xxh3_128"]) for t in said["tensors"]}
    assert len(tensors) == len(said["tensors"])
    return tensors, said["metadata"], said["format"]


def expected(tensors, folder):
    """The same tensors through a safetensors file of its own, packed and apart."""
    path = folder / "expected.safetensors"
    save_file({name: t.detach().clone().contiguous() for name, t in tensors.items()}, path)
    return held(path)[0]


def bf16_words():
    return torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16).reshape(256, 256)


def many_tensors():
    w = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    big = torch.arange(40000, dtype=torch.float32).reshape(200, 200)
    return {"w": w, "tied": w, "transposed": w.T, "every_second": w[:, ::2], "row": w[1], "fortran": w.T.contiguous().T,
            "repeated": torch.ones(1, 3).expand(5, 3), "permuted": torch.arange(24).reshape(2, 3, 4).permute(2, 0, 1),
            "big": big.T, "parameter": torch.nn.Parameter(w), "scalar": torch.tensor(2.5), "none": torch.zeros(0, 3),
            "words": bf16_words(), "half": torch.tensor([1.0, float("nan"), -0.0], dtype=torch.float16),
            "double": torch.tensor([0.1], dtype=torch.float64), "byte": torch.arange(5, dtype=torch.uint8),
            "int8": torch.tensor([-1], dtype=torch.int8), "int16": torch.tensor([-2], dtype=torch.int16),
            "int32": torch.tensor([-3], dtype=torch.int32), "flags": torch.tensor([True, False])}


@pytest.mark.tiny
@pytest.mark.parametrize("options", [{}, {"pickle_protocol": 4}, {"pickle_protocol": 5},
                                     {"_use_new_zipfile_serialization": False}], ids=lambda o: str(list(o.values())))
def test_what_torch_saves_is_read(options, tmp_path):
    tensors = many_tensors()
    torch.save(tensors, tmp_path / "m.any", **options)
    got, metadata, form = held(tmp_path / "m.any")
    assert got == expected(tensors, tmp_path)
    assert metadata == {}
    assert form == ("torch-legacy" if "_use_new_zipfile_serialization" in options else "torch-zip")


@pytest.mark.tiny
def test_types_without_a_storage_of_their_own(tmp_path):
    tensors = {"u": torch.tensor([1, 65535], dtype=torch.uint16), "f8": torch.tensor([0.5, 2]).to(torch.float8_e4m3fn),
               "c": torch.tensor([1 + 2j])}
    torch.save(tensors, tmp_path / "m.pt")
    got = held(tmp_path / "m.pt")[0]
    assert {name: t[0] for name, t in got.items()} == {"u": "U16", "f8": "F8_E4M3", "c": "C64"}
    assert {name: t[2] for name, t in got.items()} == {"u": 4, "f8": 2, "c": 8}


def flat(value, front=""):
    """Nested dictionaries and lists by dotted names: tensors, and the rest."""
    tensors, values = {}, {}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        name = f"{front}{key}"
        if torch.is_tensor(item):
            tensors[name] = item
        elif isinstance(item, (dict, list, tuple)):
            inner = flat(item, name + ".")
            tensors.update(inner[0])
            values.update(inner[1])
        else:
            values[name] = item
    return tensors, values


@pytest.mark.tiny
@pytest.mark.parametrize("zipped", [True, False])
def test_a_checkpoint_of_nanogpt(zipped, tmp_path):
    model = torch.nn.Sequential(collections.OrderedDict(wte=torch.nn.Embedding(5, 4), fc=torch.nn.Linear(4, 5, bias=False)))
    model.fc.weight = model.wte.weight
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95))
    model(torch.tensor([1, 2])).sum().backward()
    optimizer.step()
    state = collections.OrderedDict(("_orig_mod." + name, t) for name, t in model.state_dict().items())
    checkpoint = {"model": state, "optimizer": optimizer.state_dict(), "model_args": {"n_layer": 1, "bias": False},
                  "iter_num": 7, "best_val_loss": np.float32(2.5), "count": np.int64(-3), "config": {"out_dir": "out é", "x": None},
                  "device": torch.device("cpu"), "rates": (0.5, [1, 2]), "dtype": torch.float32, "ids": {4}}
    torch.save(checkpoint, tmp_path / "ckpt.pt", _use_new_zipfile_serialization=zipped)
    got, metadata, _ = held(tmp_path / "ckpt.pt")
    tensors, values = flat({**checkpoint, "ids": [4]})
    assert got == expected(tensors, tmp_path)
    assert got["model._orig_mod.wte.weight"] == got["model._orig_mod.fc.weight"]
    assert values.pop("device") == torch.device("cpu") and metadata.pop("device") == "cpu"
    assert values.pop("dtype") == torch.float32 and metadata.pop("dtype") == "torch.float32"
    assert metadata == values


class Evil:
    def __reduce__(self):
        return os.mkdir, ("pickle_was_executed",)


@pytest.mark.tiny
@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_in_a_pickle_is_executed(zipped, tmp_path):
    for name, value, words in [("evil", {"w": Evil()}, ["posix.mkdir", "byte"]),
                               ("args", {"args": argparse.Namespace(lr=1)}, ["argparse.Namespace"]),
                               ("module", torch.nn.Linear(1, 1), ["torch.nn.modules.linear.Linear"]),
                               ("array", {"a": np.ones(3)}, ["numpy", "_reconstruct"])]:
        torch.save(value, tmp_path / name, _use_new_zipfile_serialization=zipped)
        fails(1, [name, *words], "inspect", "checkpoint", tmp_path / name, cwd=tmp_path)
    assert not (tmp_path / "pickle_was_executed").exists()


def in_zip(pickle, path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02" + pickle + b".")
        archive.writestr("m/version", "3\n")
    return path


MEGABYTE = b"X" + (1 << 20).to_bytes(4, "little") + b"a" * (1 << 20)
# Some megabytes that stand for much more: what is looked at again and again, copied, or shown by many views.
BOMBS = {
    "texts": b"](" + MEGABYTE + b"q\x00" + b"h\x00" * 100000 + b"e",
    "keys": b"}(" + MEGABYTE + b"q\x00]q\x01" + b"h\x00h\x01" * 200000 + b"u",
    "lists": b"](" + b"](" + b"]" * 100000 + b"eq\x00" + b"h\x00" * 100000 + b"e",
}


@pytest.mark.tiny
@pytest.mark.parametrize("name", BOMBS)
def test_a_small_pickle_takes_no_great_work(name, tmp_path):
    fails(1, ["bad torch file"], "inspect", "checkpoint", in_zip(BOMBS[name], tmp_path / "x.pt"), timeout=60)


def test_calls_do_not_copy_their_arguments(tmp_path):
    """A long tuple that is given to a function again and again."""
    pickle = b"ctorch\nSize\nq\x000K\x00q\x050(" + b"h\x05" * 1500000 + b"tq\x01" + b"0h\x00h\x01R" * 400000 + b"0N"
    ok("inspect", "checkpoint", in_zip(pickle, tmp_path / "x.pt"), timeout=60)


def test_views_of_a_small_storage_add_up(tmp_path):
    one = torch.zeros(1)
    torch.save({str(i): one.expand(1 << 24) for i in range(20)}, tmp_path / "x.pt")
    fails(1, ["expected tensors of at most"], "inspect", "checkpoint", tmp_path / "x.pt")


def test_conjugated_and_negated_views_are_refused(tmp_path):
    for i, view in enumerate((torch.tensor([5 + 6j]).conj().imag, torch.tensor([5 + 6j]).conj())):
        torch.save({"n": view}, tmp_path / f"{i}.pt")
        fails(1, ["got a conjugated or negated view"], "inspect", "checkpoint", tmp_path / f"{i}.pt")


def test_names_are_shown_on_one_line(tmp_path):
    save_file({"a\x1b[31m\nF32": torch.zeros(1)}, tmp_path / "x.safetensors")
    assert '"a\\x1b[31m\\x0aF32"' in ok("inspect", "checkpoint", tmp_path / "x.safetensors")


def test_a_script_of_torch_is_no_file_of_weights(tmp_path):
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), tmp_path / "s.pt")
    fails(1, ["s.pt"], "inspect", "checkpoint", tmp_path / "s.pt")


@pytest.mark.tiny
def test_sums_that_torch_left_out_are_no_damage(tmp_path):
    config = torch.utils.serialization.config.save
    config.compute_crc32 = False
    try:
        torch.save({"w": torch.ones(100)}, tmp_path / "m.pt")
    finally:
        config.compute_crc32 = True
    assert held(tmp_path / "m.pt")[0]["w"][:3] == ("F32", [100], 400)
    torch.save({"w": torch.ones(100)}, tmp_path / "m.pt")
    data = bytearray((tmp_path / "m.pt").read_bytes())
    data[data.find(torch.ones(2).numpy().tobytes())] ^= 1
    (tmp_path / "m.pt").write_bytes(data)
    fails(1, ["damaged", "CRC-32", "data/0"], "inspect", "checkpoint", tmp_path / "m.pt")


@pytest.mark.tiny
def test_torch_loads_what_is_written(rewrite, tmp_path):
    tensors = many_tensors()
    tensors["u16"] = torch.tensor([1, 65535], dtype=torch.uint16)
    torch.save(tensors, tmp_path / "from.pt")
    for number in "12":
        rewrite(tmp_path / "from.pt", "torch", tmp_path / f"{number}.bin")
    assert (tmp_path / "1.bin").read_bytes() == (tmp_path / "2.bin").read_bytes()
    for mapped in (False, True):
        loaded = torch.load(tmp_path / "1.bin", weights_only=True, mmap=mapped)
        assert list(loaded) == list(tensors)
        for name, tensor in tensors.items():
            assert loaded[name].dtype == tensor.dtype and loaded[name].shape == tensor.shape and loaded[name].is_contiguous()
            assert loaded[name].reshape(-1).view(torch.uint8).tolist() == tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist()
    assert held(tmp_path / "1.bin")[0] == held(tmp_path / "from.pt")[0]


@pytest.mark.tiny
def test_c19_every_bf16_word_through_every_format(rewrite, tmp_path):
    save_file({"probe.weight": bf16_words()}, tmp_path / "safetensors")
    forms = ["safetensors", "torch", "mindspore-ckpt", "mindspore-safetensors"]
    wanted = held(tmp_path / "safetensors")[0]
    for first in forms:
        rewrite(tmp_path / "safetensors", first, tmp_path / "first")
        for second in forms:
            rewrite(tmp_path / "first", second, tmp_path / "second")
            assert held(tmp_path / "second")[0] == wanted, (first, second)
            assert (tmp_path / "second").stat().st_size < 131072 + 4096


# ---- MindSpore, in a Python of its own

SAVE = """
import sys, numpy as np, mindspore as ms
folder = sys.argv[1]
words = ms.Tensor(np.load(folder + "/floats.npy"))
arrays = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "h": np.array([1, -0.0, 6e-8], np.float16),
          "i": np.array([[-1], [2]], np.int32), "scalar": np.array(2.5, np.float32), "long": np.array([2**40]),
          "flags": np.array([True, False]), "byte": np.array([255], np.uint8)}
entries = [{"name": k, "data": ms.Tensor(v)} for k, v in arrays.items()]
whole = entries + [{"name": "b", "data": words.astype(ms.bfloat16)}]
extra = {"epoch_num": 3, "rate": 0.5, "done": True}
ms.save_checkpoint(whole, folder + "/plain.ckpt", append_dict={**extra, "note": "h\\u00e9"})
ms.save_checkpoint(entries, folder + "/crc.ckpt", crc_check=True)
ms.save_checkpoint(whole, folder + "/plain.safetensors", format="safetensors", append_dict=extra)
ms.save_checkpoint(entries, folder + "/crc.safetensors", format="safetensors", crc_check=True)
ms.save_checkpoint(entries, folder + "/secret.ckpt", enc_key=b"0" * 16)
"""

# Loads our files with strict rules and saves again what it got.
LOAD = """
import sys, mindspore as ms
from mindspore import nn, Parameter
folder = sys.argv[1]
class Net(nn.Cell):
    def __init__(self, like):
        super().__init__()
        self.list = ms.ParameterTuple([Parameter(ms.ops.zeros(p.shape, p.dtype), name=n) for n, p in like.items()])
for form in ("ckpt", "safetensors"):
    path = folder + "/ours." + form
    loaded = ms.load_checkpoint(path, format=form, **({"crc_check": True} if form == "ckpt" else {}))
    net = Net(loaded)
    missing, left_over = ms.load_param_into_net(net, loaded, strict_load=True)
    assert not missing and not left_over, (missing, left_over)
    ms.save_checkpoint(net, folder + "/again." + form, format=form)
print("loaded", len(loaded))
"""


def mindspore(script, folder):
    path = folder / "script.py"
    path.write_text(script)
    done = subprocess.run([mindspore_python(), path, folder], capture_output=True, text=True, check=False, timeout=300, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def of_mindspore(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mindspore")
    np.save(folder / "floats.npy", np.array([1.0, -2.5, 3e38, 1e-40], np.float32))
    mindspore(SAVE, folder)
    return folder


@needs_mindspore
def test_what_mindspore_saves_is_read(of_mindspore, tmp_path):
    tensors = {"w": torch.arange(6, dtype=torch.float32).reshape(2, 3), "h": torch.tensor([1, -0.0, 6e-8], dtype=torch.float16),
               "i": torch.tensor([[-1], [2]], dtype=torch.int32), "scalar": torch.tensor(2.5), "long": torch.tensor([2**40]),
               "flags": torch.tensor([True, False]), "byte": torch.tensor([255], dtype=torch.uint8)}
    words = {"b": torch.from_numpy(np.load(of_mindspore / "floats.npy")).to(torch.bfloat16)}
    extra = {"epoch_num": torch.tensor(3), "rate": torch.tensor(0.5), "done": torch.tensor(True)}
    got, metadata, form = held(of_mindspore / "plain.ckpt")
    assert form == "mindspore-ckpt" and metadata == {"note": "hé"}
    assert got == expected({**tensors, **words, **extra}, tmp_path)
    assert held(of_mindspore / "plain.safetensors")[0] == got
    for name in ("crc.ckpt", "crc.safetensors"):
        got, metadata, _ = held(of_mindspore / name)
        assert got == expected(tensors, tmp_path) and int(metadata["crc_num"]) > 0
    fails(1, ["secret.ckpt", "encrypted"], "inspect", "checkpoint", of_mindspore / "secret.ckpt")


@needs_mindspore
def test_damage_that_mindspore_lets_pass(of_mindspore, tmp_path):
    for name in ("crc.ckpt", "crc.safetensors"):
        data = bytearray((of_mindspore / name).read_bytes())
        data[data.find(np.arange(6, dtype=np.float32).tobytes()) + 8] ^= 1
        (tmp_path / name).write_bytes(data)
        fails(1, [name, "damaged"], "inspect", "checkpoint", tmp_path / name)


@needs_mindspore
def test_mindspore_loads_what_is_written(rewrite, of_mindspore, tmp_path):
    rewrite(of_mindspore / "plain.safetensors", "mindspore-ckpt", tmp_path / "ours.ckpt")
    rewrite(of_mindspore / "plain.ckpt", "mindspore-safetensors", tmp_path / "ours.safetensors")
    assert "loaded 11" in mindspore(LOAD, tmp_path)
    wanted = held(of_mindspore / "plain.safetensors")[0]
    for form in ("ckpt", "safetensors"):
        assert held(tmp_path / f"ours.{form}")[0] == wanted
        assert held(tmp_path / f"again.{form}")[0] == wanted
