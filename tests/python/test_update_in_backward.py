"""--update-in-backward: the run of one that updates after the backward pass, to the bit, with its own end where a step is
not finite."""
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from cli_support import fails, ok, ok_json, write_config, write_ids

EXACT = ("step", "tokens", "loss", "lr")


def arguments(folder, name, *more, steps=8):
    config = folder / "config.json"
    if not config.exists():
        write_config(config, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)
        write_ids(folder / "ids.bin", 1200)
    return ["train", "--model", config, "--data", folder / "ids.bin", "--out", folder / name, "--steps", steps, "--batch", "3",
            "--lr", "3e-3", "--weight-decay", "0.1", "--warmup", "2", "--valid-fraction", "0.1", "--threads", "2", *more]


def metrics_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def assert_same_weights(run, other):
    assert (run / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


@pytest.mark.parametrize("more", [[], ["--precision", "mixed"], ["--recompute", "layernorm,gelu"]])
def test_the_numbers_are_those_without_it(tmp_path, more):
    ok(*arguments(tmp_path, "apart", *more))
    ok(*arguments(tmp_path, "within", "--update-in-backward", *more))
    assert_same_weights(tmp_path / "within", tmp_path / "apart")
    within, apart = metrics_of(tmp_path / "within"), metrics_of(tmp_path / "apart")
    assert [[line[key] for key in EXACT] for line in within] == [[line[key] for key in EXACT] for line in apart]
    bound = (1024**0.5 + 384**0.5 + 2) * 2**-24  # of sums of squares in runs of 1024 and of 384, halved by the root
    for one, other in zip(within, apart):
        assert abs(one["grad_norm"] - other["grad_norm"]) <= bound * other["grad_norm"]
    assert json.loads((tmp_path / "within" / "lamina.json").read_text())["options"]["update_in_backward"] is True


def test_resume_is_exact(tmp_path):
    ok(*arguments(tmp_path, "straight", "--update-in-backward", "--schedule", "constant"))
    ok(*arguments(tmp_path, "stopped", "--update-in-backward", "--schedule", "constant", "--save-every", "2", steps=3))
    ok(*arguments(tmp_path, "stopped", "--update-in-backward", "--schedule", "constant", "--resume"))
    assert_same_weights(tmp_path / "stopped", tmp_path / "straight")
    stopped, straight = ([{**{key: line[key] for key in EXACT}, "norm": line["grad_norm"]} for line in metrics_of(tmp_path / name)]
                         for name in ("stopped", "straight"))
    assert stopped == straight
    fails(1, ["--update-in-backward", "stored true, given false"], *arguments(tmp_path, "stopped", "--resume", steps=9))


def all_finite(path):
    return all(np.isfinite(values).all() for values in load_file(path).values())


def test_a_step_that_is_not_finite_ends_the_run_and_saves_nothing(tmp_path):
    bad = ["--update-in-backward", "--lr", "1e30", "--warmup", "0"]
    out = tmp_path / "run"
    fails(1, ["step 2 is not finite", "--update-in-backward", "--resume goes on from", out / "checkpoints" / "step-1"],
          *arguments(tmp_path, "run", *bad, "--save-every", "1"))
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-1"]
    assert [line["step"] for line in metrics_of(out)] == [1]
    assert all_finite(out / "model.safetensors") and all_finite(out / "checkpoints" / "step-1" / "optimizer.safetensors")
    fails(1, ["step 2 is not finite", "there is no checkpoint to go on from"], *arguments(tmp_path, "none", *bad))
    assert not (tmp_path / "none" / "model.safetensors").exists() and not list((tmp_path / "none" / "checkpoints").iterdir())


def wide_config(folder):
    """Its gradients outweigh what is alive besides."""
    return write_config(folder / "config.json", n_embd=96, n_layer=4)


def test_a_plan_without_the_gradients_of_the_layers(tmp_path):
    config = wide_config(tmp_path)
    plain = ok_json("plan", "--model", config, "--batch", "2", "--seq", "8")
    within = ok_json("plan", "--model", config, "--batch", "2", "--seq", "8", "--update-in-backward")
    assert within["arena_bytes"] == within["max_live_bytes"] < plain["arena_bytes"]
    steps = ok("inspect", "plan", "--model", config, "--batch", "2", "--seq", "8", "--update-in-backward", "--steps")
    assert "linear_bwd_update" in steps and "qkv_bwd_update" in steps and "qkv_bwd_params" not in steps
    run = ok_json("bench", "step", "--model", config, "--batch", "2", "--seq", "8", "--steps", "1", "--clip", "0",
                  "--update-in-backward")["runs"][0]
    assert run["plan_bytes"] == within["total_bytes"]


def test_one_row_of_the_ablation_is_about_it(tmp_path):
    args = ["bench", "ablation", "--model", wide_config(tmp_path), "--batch", "2", "--seq", "8", "--steps", "1", "--only", "update"]
    row = ok_json(*args)["rows"][0]
    assert row["changes"] and row["on"]["bytes"] < row["off"]["bytes"] and row["on"]["nodes"] < row["off"]["nodes"]
    for more in (["--accumulate", "2"], ["--precision", "mixed-fp16"]):
        assert not ok_json(*args, *more)["rows"][0]["changes"]
