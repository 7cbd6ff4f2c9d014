"""Training starts from each model of tests/cases that has to load, with the loss of its weights to 1e-5 of double precision,
and what it writes is clean: no buffers, no wrappers' names, one table where it is tied. test_cases.py has what is refused."""
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from cli_support import ROOT, lamina, ok

CASES = ROOT / "tests" / "cases"
sys.path.insert(0, str(CASES))

import tiny_model  # noqa: E402

IDS = ("C1", "C14", "M1", "M2", "M3", "M8", "M10", "M14", "M15")


class Listing:
    """The manifest without the files, so that each input is a test of its own."""

    def __init__(self, tmp_path_factory):
        self.root = tmp_path_factory.mktemp("cases")
        subprocess.run([sys.executable, CASES / "make_cases.py", self.root, *IDS], check=True, capture_output=True)
        self.entries = json.loads((self.root / "manifest.json").read_text())


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    listing = Listing(tmp_path_factory)
    ids = np.array(tiny_model.PROMPT, "<u2")
    (listing.root / "prompt.bin").write_bytes(ids.tobytes())
    return listing


def named(text, words):
    """Letter case aside; a number counts only as a whole number."""
    for word in words:
        pattern = re.escape(word.lower())
        if word.isdigit():
            pattern = rf"(?<!\d){pattern}(?!\d)"
        assert re.search(pattern, text.lower()), (word, text)


def tensors_of(folder):
    """From the one file of a folder, without a front part, in double precision."""
    from safetensors.numpy import load_file

    return {name.removeprefix("transformer."): values.astype(np.float64)
            for name, values in load_file(folder / "model.safetensors").items()}


def expected_loss(root, entry):
    """Of the Tiny prompt, in double precision."""
    folder = root / entry["path"]
    if entry["case"] == "M10":
        kind = json.loads((folder / "config.json").read_text())["activation_function"]
        config, tensors = {**tiny_model.CONFIG, "activation_function": kind}, tiny_model.tiny()
    elif entry["case"] in ("M14", "M15") or entry["path"] == "M8/untied_with_head":
        config, tensors = {**tiny_model.CONFIG, **json.loads((folder / "config.json").read_text())}, tensors_of(folder)
    else:
        config, tensors = tiny_model.CONFIG, tiny_model.tiny()
    return tiny_model.mean_loss(tiny_model.logits(tensors, tiny_model.PROMPT, config), tiny_model.PROMPT)


def check_model(root, entry, out):
    """Trains one step on the prompt with a rate of 0: its loss is that of the weights."""
    result = lamina("train", "--model", root / entry["path"], "--data", root / "prompt.bin", "--seq", "11", "--batch", "1",
                    "--steps", "1", "--lr", "0", "--out", out)
    said = result.stderr.decode()
    assert result.returncode == 0, said
    loss = json.loads((out / "metrics.jsonl").read_text())["loss"]
    assert loss == pytest.approx(expected_loss(root, entry), abs=1e-5)
    warnings = [line for line in said.splitlines() if line.startswith("warning: ") and "stay idle" not in line]
    if entry["expect"] == "warn":
        assert len(warnings) == 1, said
        named(warnings[0], entry["names"])
        return
    assert not warnings, said
    named(said, entry["names"])
    # What is written has none of what was taken off or ignored, one table where it is tied, and loads again.
    names = json.loads(ok("inspect", "checkpoint", out / "model.safetensors", "--json"))
    assert names["metadata"]["format"] == "pt"
    tied = json.loads((out / "config.json").read_text())["tie_word_embeddings"]
    written = {tensor["name"] for tensor in names["tensors"]}
    layers = json.loads((out / "config.json").read_text())["n_layer"]
    assert len(written) == 4 + 12 * layers + (0 if tied else 1) and ("lm_head.weight" in written) == (not tied)
    assert not [name for name in written if name.endswith((".attn.bias", ".attn.masked_bias"))]
    again = json.loads(ok("eval", out, "--data", root / "prompt.bin", "--seq", "11", "--json"))
    assert again["loss"] == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize("case", IDS)
def test_training_starts_from_each_model_of_a_case(cases, tmp_path, case):
    entries = [entry for entry in cases.entries if entry["case"] == case and entry["expect"] != "error"]
    assert entries
    for number, entry in enumerate(entries):
        check_model(cases.root, entry, tmp_path / str(number))


def test_c1_a_tied_model_is_loaded_trained_and_saved(cases, tmp_path):
    from safetensors.numpy import load_file

    tiny = cases.root / "tiny"
    ok("train", "--model", tiny, "--data", cases.root / "prompt.bin", "--seq", "11", "--batch", "1", "--steps", "1", "--lr", "1e-3",
       "--out", tmp_path / "run")
    before, after = (load_file(side / "model.safetensors") for side in (tiny, tmp_path / "run"))
    assert len(after) == 28 and after.keys() == before.keys()
    assert "transformer.wte.weight" in after and "lm_head.weight" not in after
    assert all((after[name] != before[name]).any() for name in after)
    transformers = pytest.importorskip("transformers")
    model = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "run")
    assert (model.lm_head.weight.detach().numpy() == after["transformer.wte.weight"]).all()
