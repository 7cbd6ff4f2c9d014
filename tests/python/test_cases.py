"""Every input of tests/cases through the command line: what has to load loads and equals Tiny, what has to be refused is
refused in one line that names what the case asks for. One loop over the manifest that make_cases.py writes."""
import json
import re
import subprocess
import sys

import pytest

from cli_support import BINARY, ROOT, lamina, ok_json

TEXT, IDS = "abc ab ##a  abab#####\n#", [258, 259, 220, 256, 64, 220, 259, 257, 260, 2, 198, 2]
OTHER_LOGITS = {"M10/gelu", "M15/three_layers_config_says_three", "M8/untied_with_head"}
CASES = ["T1", "T3", "T10", "T14", "T16", "C1", "C3", "C4", "C5", "C7", "C8", "C14", "C17", "C18", "C19", "M1", "M2", "M3", "M8", "M10", "M14", "M15"]


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    subprocess.run([sys.executable, ROOT / "tests" / "cases" / "make_cases.py", folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def manifest(cases):
    return json.loads((cases / "manifest.json").read_text())


def has(word, text):
    """Letter case aside; a number counts only as a whole number."""
    before = r"(?<!\d)" if word[0].isdigit() else ""
    after = r"(?!\d)" if word[-1].isdigit() else ""
    return re.search(before + re.escape(word) + after, text, re.I) is not None


def arguments(entry, cases, run):
    """The command that looks at an input, and whether it makes a run folder."""
    path, case = cases / entry["path"], entry["case"]
    if case in ("T1", "T3"):
        return ["tokenize", "encode", "--tokenizer", cases / "T10" / "merges_as_pairs", "--file", path]
    if case == "T10":
        return ["tokenize", "encode", "--tokenizer", path.parent, "--file", cases / "text.txt"]
    if case in ("T14", "T16"):
        token_type = path.stem.rsplit("_", 1)[1]
        return ["train", "--model", cases / "tiny", "--data", path, "--token-type", token_type, "--out", run, "--steps", "1"]
    if case.startswith("C") and path.is_file():
        return ["inspect", "checkpoint", path]
    return ["train", "--model", path, "--data", cases / "tiny" / "tokens_u16.bin", "--out", run, "--steps", "1"]


def check(entry, cases, run, command=None):
    result = lamina(*(command or arguments(entry, cases, run)))
    said, name = result.stderr.decode(), entry["path"]
    errors = [line for line in said.splitlines() if line.startswith("lamina: error: ")]
    text = "\n".join(errors) if entry["expect"] == "error" else said
    assert result.returncode == (1 if entry["expect"] == "error" else 0), (name, said)
    assert len(errors) == (1 if entry["expect"] == "error" else 0), (name, said)
    assert [word for word in entry["names"] if not has(word, text)] == [], (name, said)
    if entry["expect"] == "warn":
        assert "warning: " in said, (name, said)
    if entry["expect"] == "error":
        assert not run.exists(), name


@pytest.mark.tiny
@pytest.mark.parametrize("case", CASES)
def test_case(case, cases, manifest, tmp_path):
    (cases / "text.txt").write_text(TEXT)
    entries = [entry for entry in manifest if entry["case"] == case]
    assert entries
    for number, entry in enumerate(entries):
        check(entry, cases, tmp_path / str(number))


@pytest.mark.tiny
def test_conversions_judge_models_as_training_does(cases, manifest, tmp_path):
    models = [entry for entry in manifest if entry["case"][0] == "M" or (entry["case"][0] == "C" and (cases / entry["path"]).is_dir())]
    assert len(models) > 30
    for number, entry in enumerate(models):
        run = tmp_path / str(number)
        check(entry, cases, run, ["convert", cases / entry["path"], run, "--to", "torch"])


def test_c17_nothing_was_executed(cases, manifest, tmp_path):
    """The pickles that would make a folder, in a folder of their own."""
    evil = [entry["path"] for entry in manifest if "posix.mkdir" in entry["names"]]
    assert len(evil) == 2
    for path in evil:
        assert lamina("inspect", "checkpoint", cases / path, cwd=tmp_path).returncode == 1
    assert not list(tmp_path.iterdir())


def test_c17_c18_c19_hold_what_they_should(cases):
    """Every form of the same model or tensor gives the same bytes."""
    def hashes(path):
        return [(t["name"].removeprefix("model."), t["dtype"], t["shape"], t["xxh3_128"])
                for t in ok_json("inspect", "checkpoint", cases / path, "--hash")["tensors"]]

    tiny = sorted(hashes("tiny/model.safetensors"))
    for name in ["zip_protocol_2", "zip_protocol_3", "zip_protocol_4", "zip_protocol_5", "legacy_protocol_2", "trainer_file"]:
        assert sorted(hashes(f"C17/{name}/pytorch_model.bin")) == tiny, name
    assert hashes("C18/plain.ckpt") == hashes("C18/dotted.ckpt") == hashes("C18/dotted_upper.ckpt")
    assert hashes("C19/every_word.safetensors") == hashes("C19/every_word.bin") == hashes("C19/every_word.ckpt")


def test_no_case_is_left_out(manifest):
    assert {entry["case"] for entry in manifest} == set(CASES)


def test_t10_every_form_gives_the_same_ids(cases, manifest):
    (cases / "text.txt").write_text(TEXT)
    sound = [entry for entry in manifest if entry["case"] == "T10" and entry["expect"] == "ok"]
    assert len(sound) == 5
    for entry in sound:
        folder = (cases / entry["path"]).parent
        assert ok_json("tokenize", "encode", "--tokenizer", folder, "--file", cases / "text.txt")["ids"] == IDS


def test_what_loads_equals_tiny(cases, manifest):
    data = ["--data", cases / "tiny" / "tokens_u16.bin", "--batch", "32"]
    tiny, untied = (ok_json("eval", cases / name, *data)["loss"] for name in ("tiny", "tiny_untied"))
    assert tiny != untied
    folders = [entry["path"] for entry in manifest
               if entry["expect"] != "error" and entry["case"][0] in "CM" and (cases / entry["path"]).is_dir()]
    assert len(folders) > 15
    for path in folders:
        loss = ok_json("eval", cases / path, *data)["loss"]
        if path == "M8/untied_with_head":
            assert loss == untied
        elif path == "M14/one_tensor_in_f16":
            assert loss == pytest.approx(tiny, rel=1e-3)
        else:
            assert (loss == tiny) == (path not in OTHER_LOGITS), path


def test_c4_a_header_that_claims_much_takes_no_memory(cases):
    """The peak of the whole process, which starts at a few megabytes."""
    script = ("import os, resource, subprocess, sys; subprocess.run(sys.argv[1:], capture_output=True);"
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    peaks = {}
    for name in ("7_bytes", "length_101_mib", "length_2_63", "length_2_64_minus_1"):
        command = [sys.executable, "-c", script, str(BINARY), "inspect", "checkpoint", str(cases / "C4" / f"{name}.safetensors")]
        peaks[name] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert max(peaks.values()) - peaks["7_bytes"] < 16 * 1024, peaks
