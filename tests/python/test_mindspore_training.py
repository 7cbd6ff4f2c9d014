"""The state of training of `lamina.mindspore` in files, its folders in MindSpore's formats, and its program
`lamina.mindspore.train` beside `lamina train`."""
import json
import struct
import zlib

import cli_support as cli
import numpy as np
import pytest
import tiny
import torch
from mindspore_support import needs_mindspore, run_children
from safetensors.numpy import load_file, save_file
from test_parity import EPS, UNIT

pytestmark = needs_mindspore

TRAIN = {"batch": 2, "seq": 11, "accumulate": 2, "lr": 3e-3, "schedule": "cosine", "warmup": 3, "min-lr": 1e-4, "weight-decay": 0.1,
         "clip": 1, "eps": EPS, "seed": 7}
SCHEDULES = ("constant", "linear", "wsd")  # and cosine in all others
FOLDERS = {"mindspore": (), "mindspore-ckpt": (), "with-state": ("--optimizer",), "ckpt-with-state": ("--optimizer",),
           "bf16": ("--dtype", "bf16")}
TO = {"mindspore-ckpt": "mindspore-ckpt", "ckpt-with-state": "mindspore-ckpt"}


def options(**changes):
    values = {**TRAIN, **changes}
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", *([] if value is True else [str(value)]))]


def programs(folder):
    """(first process, second process) of lamina.mindspore.train."""
    base = ["--model", folder / "tiny", "--data", folder / "ids.bin"]
    whole = {"out": folder / "whole", "steps": 10}
    part = {"out": folder / "part", "steps": 6, "schedule": "constant", "accumulate": 1, "resume": True}
    first = {
        "whole": [*base, *options(**whole)],
        "stopped": [*base, *options(**part, save_every=3)],
        "exists": [*base, *options(**whole)],
        "changed": [*base, *options(**part, clip=2)],
        "foreign": [*base, *options(out=folder / "tiny", steps=6, resume=True)],
        "model": ["--model", folder / "mindspore", "--data", folder / "ids.bin", *options(out=folder / "no", steps=1, precision="fp8")],
        "seq": [*base, *options(out=folder / "no", steps=1, seq=17)],
        "batch": [*base, *options(out=folder / "no", steps=1, batch=0)],
        "betas": [*base, *options(out=folder / "no", steps=1, betas="0.9")],
        "short": [*base, *options(out=folder / "no", steps=1, sequence=3)],
        "data": ["--model", folder / "tiny", "--data", folder / "nothing.bin", *options(out=folder / "no", steps=1)],
        "rate": [*base, *options(out=folder / "no", steps=1, lr="1e39")],
        "seed": [*base, *options(out=folder / "no", steps=1, seed=2**63)],
        "infinite": [*base, *options(out=folder / "infinite", steps=1, warmup=0, lr="3e38", weight_decay="1e6")],
        "list": [*base, *options(out=folder / "list", steps=1, resume=True)],
        "decay": [*base, *options(out=folder / "no", steps=4, schedule="wsd", decay_steps=4)],
    }
    second = {"rest": [*base, *options(**part, save_every=3)],
              "straight": [*base, *options(**{**part, "out": folder / "straight"})]}
    words = lambda runs: {name: [str(word) for word in run] for name, run in runs.items()}  # noqa: E731
    return words(first), words(second)


def write_ckpt(path, records, trailer=b""):
    """records: (name or None, type or None, shape, bytes)."""
    def field(key, data):
        return bytes([key]) + varint(len(data)) + data

    out = b""
    for name, kind, shape, data in records:
        dims = b"".join(b"\x08" + varint(size) for size in shape)
        body = dims + (field(0x12, kind.encode()) if kind else b"") + field(0x1A, data)
        out += field(0x0A, (field(0x0A, name.encode()) if name is not None else b"") + field(0x12, body))
    path.write_bytes(out + trailer)


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def write_bad_ckpts(folder):
    """Name of a file to what its refusal has to say."""
    four, good = b"\0" * 4, ("w", "Float32", [1], b"\0" * 4)
    cases = {
        "long": ([("w", "Float32", [1], four * 2)], ["w", "4 bytes", "got 8"]), "short": ([("w", "Float32", [2], four)], ["8", "got 4"]),
        "no_name": ([(None, "Float32", [1], four)], ["a name"]), "no_type": ([("w", None, [1], four)], ["a type"]),
        "twice": ([good, ("v", "Float32", [1], four), good], ['"w"', "again"]),
        "huge": ([("w", "Float32", [2**62, 2**62], four)], ["w", "got 4"]), "empty": ([], ["0 bytes"]),
    }
    for name, (records, _) in cases.items():
        write_ckpt(folder / f"{name}.ckpt", records)
    pieces = [("p", "mindspore.float32", [3], np.float32(1.5).tobytes()), ("p", "Float32", [3], np.float32([2, 3]).tobytes()),
              ("scalar", "BFloat16", [0], b"\x80\x3f")]
    write_ckpt(folder / "pieces.ckpt", pieces)
    data = (folder / "pieces.ckpt").read_bytes()
    (folder / "pieces.ckpt").write_bytes(data + b"crc_num" + struct.pack(">HQ", 0, zlib.crc32(data)))
    write_ckpt(folder / "sum.ckpt", [good], b"crc_num" + struct.pack(">HQ", 0, 1))
    write_ckpt(folder / "cut.ckpt", [good])
    (folder / "cut.ckpt").write_bytes((folder / "cut.ckpt").read_bytes()[:-1])
    (folder / "other.ckpt").write_bytes(b"PK\x03\x04")
    return {**{f"{name}.ckpt": words for name, (_, words) in cases.items()}, "sum.ckpt": ["crc_num"], "cut.ckpt": ["truncated"],
            "other.ckpt": ["byte 0", "0x50"], "absent.ckpt": ["No such file"]}


def write_bad_ids(folder):
    header = lambda *words, data=b"": np.array(words, "<i4").tobytes().ljust(1024, b"\0") + data  # noqa: E731
    files = {"odd": (b"abc", ["multiple of 2", "3"]), "version": (header(20240520, 2, 0), ["version 1", "got version 2"]),
             "count": (header(20240520, 1, 3, data=b"\0\0"), ["3 ids", "got 2"]), "id": (b"\0\0\x61\0", ["position 1", "below 97", "97"]),
             "stump": (header(20240801, 7, 0)[:100], ["1024 bytes", "got 100"])}
    for name, (data, _) in files.items():
        (folder / f"{name}.bin").write_bytes(data)
    return {**{f"{name}.bin": words for name, (_, words) in files.items()}, "absent.bin": ["No such file"]}


def write_states(folder):
    """States with one thing wrong, from a good one, and what has to be said."""
    good = load_file(folder / "with-state" / "model.safetensors")
    name = "adam_v.layer.1.mlp.fc.weight"
    cases = {"missing": ({name: None}, ["missing", name]), "extra": ({"adam_m.other": good[name]}, ["extra", "adam_m.other"]),
             "shape": ({name: good[name].T.copy()}, ["misshapen", name, "[16, 64]"]), "step": ({"global_step": None}, ["missing", "global_step"]),
             "steps": ({"global_step": np.zeros(2, np.int32)}, ["global_step", "one number"]),
             "type": ({name: good[name].astype(np.float64)}, ["mistyped", name, "F64"]),
             "none": (dict.fromkeys(key for key in good if key.startswith("adam_")), ["no optimizer state", "adam_m"]),
             "heads": ({}, ["n_head", "expected 2, got 4"])}
    for case, (changes, _) in cases.items():
        tiny.write(folder / case, **({"n_head": 4} if case == "heads" else {}))
        tensors = {key: value for key, value in {**good, **changes}.items() if value is not None}
        save_file(tensors, folder / case / "model.safetensors", metadata={"format": "ms"})
    return {case: words for case, (_, words) in cases.items()}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder, what had to be said, and both processes' answers."""
    folder = tmp_path_factory.mktemp("training")
    tiny.write(folder / "tiny")
    (folder / "ids.bin").write_bytes(tiny.tokens(310).astype("<u2").tobytes())
    for name, changes in {"lamina": {}, **{f"lamina-{name}": {"schedule": name} for name in SCHEDULES}}.items():
        cli.ok("train", "--model", folder / "tiny", "--data", folder / "ids.bin", "--out", folder / name, "--steps", 10, *options(**changes))
    for name, extra in FOLDERS.items():
        cli.ok("convert", folder / "lamina" / "checkpoints" / "step-10", folder / name, "--to", TO.get(name, "mindspore"), *extra)
    tiny.write(folder / "list")
    (folder / "list" / "train.json").write_text("[]")
    expected = {"ckpt": write_bad_ckpts(folder), "ids": write_bad_ids(folder), "refused": write_states(folder)}
    first, second = programs(folder)
    rates = {name: ["--model", "m", "--data", "d", "--out", "o", "--steps", "10", *options(schedule=name)] for name in SCHEDULES}
    task = dict(pynative=False, loads=list(FOLDERS), programs=first, rates=rates,
                **{key: list(value) for key, value in expected.items()})
    (answer,) = run_children([("training", folder, task)])
    with open(folder / "part" / "metrics.jsonl", "ab") as file:
        file.write(b"\xff\xfe\n")  # what comes after the state goes, whatever it is
    (continued,) = run_children([("continued", folder, dict(pynative=False, programs=second))])
    return folder, expected, answer, continued


def test_training_goes_on_in_another_process_with_the_same_bits(run):
    _, _, answer, continued = run
    state = answer["state"]
    assert continued["saved"] == state["saved"] and continued["counters"] == [5, 5]
    assert continued["losses"] == state["losses"] and continued["end"] == state["end"]
    assert state["hidden"] == [] and state["report"] == "36 of 36 tensors, 0 left over"


def test_an_overflow_in_a_micro_batch_changes_no_bit(run):
    half = run[2]["half"]
    assert half["finite"] is False and half["same"] and half["scale"] == 1.0 and half["updates"] == 1
    assert run[3]["half"] == [half["counters"], half["saved"]] and half["counters"] == [3, 2, 1024.0, 1]
    assert "a multiple of 2 rows" in half["rows"] and "got 3" in half["rows"]


def test_the_saved_state_is_a_model_of_lamina_and_torch(run, tmp_path):
    folder, _, answer, _ = run
    assert "36 tensors" not in cli.ok("inspect", "checkpoint", folder / "state")  # the moments are there too
    cli.ok("eval", folder / "state", "--data", folder / "ids.bin")
    cli.ok("convert", folder / "state", tmp_path / "torch", "--to", "torch", "--optimizer")
    stored = load_file(folder / "state" / "model.safetensors")
    state = torch.load(tmp_path / "torch" / "optimizer.pt", weights_only=True)["state"]
    assert state[0]["step"] == 5 and torch.equal(state[0]["exp_avg"], torch.from_numpy(stored["adam_m.embedding.token"]))
    weights = torch.load(tmp_path / "torch" / "pytorch_model.bin", weights_only=True)
    packed = np.concatenate([stored[f"layer.1.attention.{part}.weight"] for part in "qkv"], axis=1)
    assert torch.equal(weights["transformer.h.1.attn.c_attn.weight"], torch.from_numpy(packed))
    cli.ok("convert", folder / "state", tmp_path / "again", "--to", "mindspore", "--optimizer")
    again = load_file(tmp_path / "again" / "model.safetensors")
    for name in again:
        assert again[name].tobytes() == stored[name].tobytes(), name
    assert stored.keys() - again.keys() == {"step_num"}


def test_files_for_mindspore_load_by_its_own_loader(run):
    """Case M14: what is not loaded and what is left over are both empty; of a whole state only the count of updates is left."""
    loads = run[2]["loads"]
    assert loads["names"]
    plain = loads["folders"]["mindspore"]
    for name, (report, values, ignored, missing, left, own) in loads["folders"].items():
        state = name.endswith("with-state")
        assert report == "36 of 36 tensors, 0 left over" and ignored == (2 * 36 + 1 if state else 0), name
        assert missing == [] and left == (["global_step"] if state else []), name
        assert (values == plain[1]) == (name != "bf16") and (own == values), name


def test_what_is_wrong_is_named_and_changes_nothing(run):
    _, expected, answer, _ = run
    assert answer["refused"].pop("unchanged") is True
    for kind, cases in expected.items():
        for name, words in cases.items():
            assert [word for word in words if word not in answer[kind][name]] == [], (name, answer[kind][name])


def test_the_norm_of_a_table_is_exact(run):
    """A row's sum rounds 16 times; what many small rows add must not be lost beside a few large ones."""
    assert abs(run[2]["norm"]) <= 16 * UNIT


def test_a_ckpt_in_pieces_with_its_sum(run):
    assert run[2]["pieces"] == [[["p", "F32", [3]], ["scalar", "BF16", []]], [1.5, 2.0, 3.0], [1.0]]


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_both_programs_take_the_same_steps(run):
    """The same rows, rates and losses; both lie within their distance of the double result."""
    folder, _, answer, _ = run
    assert answer["programs"]["whole"][0] == 0, answer["programs"]["whole"]
    ours, theirs = lines(folder / "whole"), lines(folder / "lamina")
    assert len(ours) == 10
    for own, other in zip(ours, theirs, strict=True):
        assert own.keys() == other.keys() - {"peak_fraction"}
        assert own["step"] == other["step"] and own["tokens"] == other["tokens"] and own["lr"] == pytest.approx(other["lr"], rel=1e-15)
        assert abs(own["loss"] - other["loss"]) <= 32 * UNIT * other["loss"]
    assert {own["tokens"] for own in ours} >= {44, 11}  # the last step of an epoch is one row
    for schedule, rates in answer["rates"].items():
        assert rates == pytest.approx([line["lr"] for line in lines(folder / f"lamina-{schedule}")], rel=1e-14), schedule


def test_a_run_goes_on_where_it_was_stopped(run):
    folder, _, answer, continued = run
    code, said = answer["programs"]["stopped"]
    assert code == 143 and said == f"4 of 6 steps: {folder / 'part'}; --resume goes on with it"
    assert continued["programs"]["rest"][0] == 0 == continued["programs"]["straight"][0]
    times = ("step_ms", "tokens_per_s")
    runs = [[{key: value for key, value in line.items() if key not in times} for line in lines(folder / name)]
            for name in ("part", "straight")]
    assert runs[0] == runs[1] and len(runs[0]) == 6
    sums = {zlib.crc32((folder / name / "model.safetensors").read_bytes()) for name in ("part", "straight")}
    assert len(sums) == 1


def test_the_program_refuses_what_makes_no_sense(run):
    said = run[2]["programs"]
    words = {"exists": [1, "output exists"], "changed": [1, "clip, expected 1.0, got 2.0"], "foreign": [1, "train.json"], "model": [1, "precision"],
             "seq": [1, "n_positions 16, got 17"], "batch": [2, "--batch", "from 1"], "betas": [2, "two numbers"],
             "short": [2, "--sequence"], "data": [1, "nothing.bin", "No such file"], "decay": [1, "--decay-steps 4", "at most 4"],
             "rate": [2, "--lr", "to 3.402823466e+38", "1e39"], "seed": [2, "--seed", "to 9223372036854775807"],
             "infinite": [1, "step 1", "expected finite numbers"], "list": [1, "train.json", "expected an object", "a list of 0 entries"]}
    for name, (code, *expected) in words.items():
        assert said[name][0] == code and all(word in said[name][1] for word in expected), (name, said[name])
    assert not (run[0] / "no").exists() and not (run[0] / "infinite" / "model.safetensors").exists()
