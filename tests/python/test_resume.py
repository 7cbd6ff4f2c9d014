"""Stop, crash and go on: every number of a run that was stopped is that of one that was not. The ids (R1, R3, …) are those
of tests/cases/README.md."""
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import time

import numpy as np
import pytest

from cli_support import BINARY, fails, lamina, ok, ok_json, write_config, write_ids, write_json, write_text, tiny_config

STEPS = 24
EXACT = ("step", "tokens", "loss", "lr", "grad_norm", "valid_loss")
CHECKPOINT = {"manifest.json", "config.json", "generation_config.json", "model.safetensors", "optimizer.safetensors"}


def metrics_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def exact_metrics(run):
    """What has to be equal, bit for bit: no times."""
    return [{key: line.get(key) for key in EXACT} for line in metrics_of(run)]


def steps_of(run):
    """The checkpoints that are there, by number."""
    return sorted(int(path.name[5:]) for path in (run / "checkpoints").iterdir() if path.name.startswith("step-"))


def arguments(folder, *more, steps=STEPS):
    """A run with everything that has state: dropout, accumulation, warm-up, decay, validation, moments."""
    config = folder / "config.json"
    if not config.exists():
        write_config(config, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)
        write_ids(folder / "ids.bin", 1200)
    return ["train", "--model", config, "--data", folder / "ids.bin", "--valid-fraction", "0.1", "--steps", steps, "--batch", "2",
            "--accumulate", "2", "--lr", "3e-3", "--clip", "1", "--weight-decay", "0.1", "--schedule", "cosine", "--warmup", "3",
            "--eval-every", "5", "--threads", "1", *more]


def assert_equal_runs(run, straight):
    for name in ("model.safetensors", "config.json"):
        assert (run / name).read_bytes() == (straight / name).read_bytes(), name
    last = f"checkpoints/step-{steps_of(straight)[-1]}"
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (run / last / name).read_bytes() == (straight / last / name).read_bytes(), name
    progress = [json.loads((side / last / "manifest.json").read_text())["state"]["progress"] for side in (run, straight)]
    assert progress[0] == progress[1]
    assert exact_metrics(run) == exact_metrics(straight)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The undisturbed run, and the data of all others."""
    folder = tmp_path_factory.mktemp("straight")
    ok(*arguments(folder, "--out", folder / "run"))
    return folder


def copy_of(straight, folder):
    for name in ("config.json", "ids.bin"):
        shutil.copy(straight / name, folder / name)
    return folder


# R1: rates; R3: batches. A stop after every step.
@pytest.mark.parametrize("stop", [1, 4, 5, 12, 23])
def test_r1_r3_a_run_in_two_parts_is_the_run(straight, tmp_path, stop):
    args = arguments(copy_of(straight, tmp_path), "--out", tmp_path / "run", "--save-every", stop)
    run_until(args, tmp_path / "run", stop)
    result = ok_json(*args, "--resume")
    assert result["resumed_from"] >= stop and result["steps"] == STEPS
    assert_equal_runs(tmp_path / "run", straight / "run")


def run_until(args, run, step):
    """Starts a run and kills it once the checkpoint of `step` is there."""
    process = subprocess.Popen([str(BINARY), *map(str, args)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (run / "checkpoints" / f"step-{step}").exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.kill()
    process.communicate()
