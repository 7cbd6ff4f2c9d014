"""lamina.save_tensors and load_tensors: arrays as they lie in memory, files of every format. lamina.convert, verify and
lint_migration: what the commands say."""
import json
import subprocess

import cli_support as cli
import numpy as np
import pytest
import tiny
import torch
from mindspore_support import mindspore_python, needs_mindspore
from safetensors.numpy import load_file, save_file

import lamina

FILES = {"safetensors": "a.safetensors", "torch": "a.pt", "mindspore": "b.safetensors", "mindspore-ckpt": "a.ckpt"}
W = np.arange(12, dtype=np.float32).reshape(3, 4)
VIEWS = {"transposed": W.T, "stepped": W[:, ::2], "reversed": W[::-1], "fortran": np.asfortranarray(W)}


def read_by_others(path, form):
    if form == "torch":
        return {name: value.numpy() for name, value in torch.load(path, weights_only=True).items()}
    return load_file(path) if form != "mindspore-ckpt" else lamina.load_tensors(str(path))


@pytest.mark.parametrize("form", FILES)
def test_c2_arrays_that_are_not_packed(form, tmp_path):
    path = tmp_path / FILES[form]
    lamina.save_tensors(str(path), {**VIEWS, "torch": torch.from_numpy(W).T}, format=form)
    for found in (read_by_others(path, form), lamina.load_tensors(str(path))):
        assert found["transposed"].shape == (4, 3) and found["stepped"].shape == (3, 2)
        assert found["transposed"].ravel().tolist() == [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]
        for name, values in {**VIEWS, "torch": W.T}.items():
            assert np.array_equal(found[name], values), name


@pytest.mark.parametrize("form", FILES)
def test_types_and_sizes(form, tmp_path):
    bits = np.arange(65536, dtype=np.uint16)
    bf16 = torch.from_numpy(bits.view(np.int16).copy()).view(torch.bfloat16)
    arrays = {"bool": np.array([True, False]), "f16": bits.view(np.float16), "f64": np.array([1 / 3]), "scalar": np.float32(2.5).reshape(()),
              "i64": np.array([-(2**63), 2**63 - 1]), "u8": np.arange(3, dtype=np.uint8)[::-1]}
    if form != "mindspore-ckpt":
        arrays["empty"] = np.zeros((0, 3), np.int32)
    path = tmp_path / FILES[form]
    lamina.save_tensors(str(path), {**arrays, "bf16": bf16}, format=form)
    found = lamina.load_tensors(str(path))
    assert torch.equal(torch.from_dlpack(found.pop("bf16")).view(torch.int16), bf16.view(torch.int16))
    assert found.keys() == arrays.keys()
    for name, values in arrays.items():
        assert found[name].dtype == values.dtype and found[name].shape == values.shape, name
        assert found[name].tobytes() == values.tobytes(), name


@pytest.mark.parametrize("form", FILES)
def test_no_tensor_and_foreign_byte_order(form, tmp_path):
    """What cannot be read back empty is refused; numbers are the same in any byte order."""
    path = tmp_path / FILES[form]
    if form.startswith("mindspore"):
        with pytest.raises(lamina.Error, match="expected one tensor at least, got none"):
            lamina.save_tensors(path, {}, format=form)
        assert not path.exists()
    else:
        lamina.save_tensors(path, {}, format=form)
        assert lamina.load_tensors(path) == {}
    lamina.save_tensors(path, {"a": W.astype(">f4").T, "b": np.array([1, -2], ">i8")}, format=form)
    found = lamina.load_tensors(path)
    assert np.array_equal(found["a"], W.T) and found["b"].tolist() == [1, -2]


def test_paths_are_texts_or_path_objects(tmp_path):
    model = tmp_path / "model"
    tiny.write(model)
    lamina.convert(model, tmp_path / "torch", to="torch", config=model / "config.json")
    assert lamina.verify(model, tmp_path / "torch", config_a=model / "config.json")["equal"]
    lamina.verify(model, write_witness=tmp_path / "numbers")
    assert lamina.verify(model, witness=tmp_path / "numbers")["equal"]
    assert lamina.lint_migration(model) == lamina.lint_migration(str(model))
    with pytest.raises(lamina.Error, match="expected a text or a path"):
        lamina.lint_migration(7)
    loaded = lamina.Model.from_pretrained(model)
    loaded.save_pretrained(tmp_path / "saved", tokenizer=lamina.Tokenizer.train(["ab"], vocab_size=257))
    assert lamina.Tokenizer.from_pretrained(tmp_path / "saved").vocab_size == 257
    assert lamina.Model.from_config(model / "config.json").config == loaded.config
    cli.write_json(tmp_path / "map.json", {"*": "bf16"})
    lamina.Trainer(loaded, precision=tmp_path / "map.json")


def test_what_cannot_be_saved(tmp_path):
    path = str(tmp_path / "x.safetensors")
    for tensors, words in (({"a": "text"}, ['"a"', "array"]), ({1: W}, ["names"]), ({"a": W.astype(np.complex64)}, ['"a"', "numbers"])):
        with pytest.raises(lamina.Error) as caught:
            lamina.save_tensors(path, tensors)
        assert all(word in str(caught.value) for word in words), caught.value
    with pytest.raises(lamina.Error, match="mindspore-ckpt"):
        lamina.save_tensors(path, {"a": W}, format="npz")
    assert not any(tmp_path.iterdir())


def test_a_conversion_is_the_program_s(tmp_path):
    tiny.write(tmp_path / "a")
    said = lamina.convert(str(tmp_path / "a"), str(tmp_path / "b"), to="mindspore", names="mindformers-1.x")
    assert said == cli.ok_json("convert", tmp_path / "a", tmp_path / "c", "--to", "mindspore", "--names", "mindformers-1.x")
    for name in ("model.safetensors", "config.json", "conversion.json"):
        assert (tmp_path / "b" / name).read_bytes() == (tmp_path / "c" / name).read_bytes()
    with pytest.raises(lamina.Error, match="not empty"):
        lamina.convert(str(tmp_path / "a"), str(tmp_path / "b"), to="hf")


def without_time(report):
    return {key: value for key, value in report.items() if key != "seconds"}


def test_a_comparison_is_the_programs(tmp_path):
    a, b, shifted = (str(tiny.write(tmp_path / name)) for name in "abc")
    weights = load_file(tmp_path / "c" / "model.safetensors")
    weights["transformer.h.1.mlp.c_fc.bias"][:] += 0.5
    save_file(weights, tmp_path / "c" / "model.safetensors")
    for arguments, options in (((a, b), {}), ((a, shifted), dict(seed=3, tokens=5, tolerance=1e-3, threads=1))):
        flags = [part for name, value in options.items() for part in (f"--{name}", value)]
        told = json.loads(cli.lamina("verify", *arguments, *flags, "--json").stdout)
        said = lamina.verify(*arguments, **options)
        assert without_time(said) == without_time(told) and said["equal"] == (arguments[1] == b)
    written = lamina.verify(a, write_witness=str(tmp_path / "numbers"), ids=np.array([1, 2, 3, 4]), steps=2)
    assert written["tokens"] == 4 and "equal" not in written
    assert lamina.verify(a, witness=str(tmp_path / "numbers"))["equal"]
    assert not lamina.verify(shifted, witness=str(tmp_path / "numbers"))["equal"]
    for wrong, words in ((dict(tokens=0), "--tokens"), (dict(b=b, threads=0), "--threads"), (dict(b=b, threads=2000), "--threads"), (dict(b=b, lr=1.0), "--lr"),
                         (dict(ids="1 2"), "ids.*wrong type"), (dict(witness="x", names_b="hf"), "--names-b"), ({}, "nothing to compare")):
        with pytest.raises(lamina.Error, match=words):
            lamina.verify(a, **wrong)


def test_names_that_a_file_does_not_say(tmp_path):
    """Megatron's: only a number tells how q, k and v are packed."""
    source, target = str(tiny.write(tmp_path / "a")), str(tmp_path / "b")
    lamina.convert(source, target, to="torch", names="megatron")
    with pytest.raises(lamina.Error, match="checkpoint_version") as caught:
        lamina.verify(source, target)
    assert "--names-a megatron" in caught.value.hint
    assert lamina.verify(source, target, names_b="megatron")["equal"] and lamina.verify(target, source, names_a="megatron")["equal"]
    with pytest.raises(lamina.Error, match="unknown names.*mindformers-1.x"):
        lamina.verify(source, target, names_b="caffe")


def test_findings_are_the_programs(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("from mindspore import nn\nnorm = nn.LayerNorm((32,))\n")
    folder = str(tiny.write(tmp_path / "a"))
    said = lamina.lint_migration(str(script), folder)
    assert said == json.loads(cli.lamina("lint-migration", script, folder, "--json").stdout) and said["counts"]["error"] == 1
    assert lamina.lint_migration(rules=True) == cli.ok_json("lint-migration", "--rules")
    for wrong in (dict(), dict(rules=True)):
        with pytest.raises(lamina.Error, match="expected paths or rules"):
            lamina.lint_migration(*([folder] if wrong else []), **wrong)


def test_a_model_is_made_of_any_format(tmp_path):
    tiny.write(tmp_path / "a")
    logits = lamina.Model.from_pretrained(str(tmp_path / "a")).forward([tiny.PROMPT]).copy()
    for target in ("torch", "mindspore", "mindspore-ckpt"):
        lamina.convert(str(tmp_path / "a"), str(tmp_path / target), to=target)
        model = lamina.Model.from_pretrained(str(tmp_path / target))
        assert np.array_equal(model.forward([tiny.PROMPT]), logits), target


@needs_mindspore
def test_mindspore_reads_arrays_that_are_not_packed(tmp_path):
    for form in ("mindspore", "mindspore-ckpt"):
        lamina.save_tensors(str(tmp_path / FILES[form]), VIEWS, format=form)
    script = ("import mindspore as ms\n"
              "for path, form in (('b.safetensors', 'safetensors'), ('a.ckpt', 'ckpt')):\n"
              "    print(ms.load_checkpoint(path, format=form)['transposed'].asnumpy().ravel().astype(int).tolist())\n")
    (tmp_path / "run.py").write_text(script)
    done = subprocess.run([mindspore_python(), "run.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split("\n")[:2] == ["[0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]"] * 2
