"""--precision: maps, what is printed and stored, resuming, and loss curves beside fp32's."""
import json
import re
import subprocess

import numpy as np
import pytest

from cli_support import fails, ok, ok_json, write_config, write_ids, write_json

PARTS = ["attention.q", "attention.k", "attention.v", "attention.core", "attention.proj", "mlp.fc", "mlp.proj"]


@pytest.fixture
def model(tmp_path):
    return write_config(tmp_path / "config.json")


def test_the_effective_map_is_in_the_plan(tmp_path, model):
    plan = ok_json("plan", "--model", model, "--precision", "mixed")
    assert plan["precision"] == "mixed"
    assert plan["precision_map"] == {"embedding": "fp32", "head": "bf16", **{f"layer.0-1.{part}": "bf16" for part in PARTS}}
    assert plan["arithmetic"].keys() == {"bf16"}
    map_json = write_json(tmp_path / "map.json", {"*": "bf16", "h.1": "fp32", "transformer.h.1.mlp.c_fc.weight": "fp16"})
    plan = ok_json("plan", "--model", model, "--precision", map_json)
    assert plan["precision_map"]["embedding"] == "bf16"
    assert plan["precision_map"]["layer.0.mlp.fc"] == "bf16" and plan["precision_map"]["layer.1.mlp.fc"] == "fp16"
    assert plan["precision_map"]["layer.1.mlp.proj"] == "fp32"
    assert plan["arithmetic"].keys() == {"bf16", "fp16"}
    again = write_json(tmp_path / "again.json", plan["precision_map"])
    assert ok_json("plan", "--model", model, "--precision", again)["precision_map"] == plan["precision_map"]


@pytest.mark.parametrize("content, words", [
    ({"atention": "bf16"}, ["pattern atention", "expected"]),
    ({"layer.2": "bf16"}, ["layer.2 matches no part", "layers 0 to 1"]),
    ({"ln_1": "bf16"}, ["pattern ln_1", "always fp32"]),
    ({"head": "int8"}, ["head", "expected fp32, bf16 or fp16", "int8"]),
    ({"head": "bf16", "lm_head": "fp16"}, ["head is bf16 by head and fp16 by lm_head"]),
    ([], ["expected an object"]),
])
def test_a_bad_map_is_one_line(tmp_path, model, content, words):
    fails(1, ["bad precision map", *words], "plan", "--model", model, "--precision", write_json(tmp_path / "map.json", content))


def test_a_bad_word_is_wrong_usage(tmp_path, model):
    fails(2, ["--precision", "mixed-fp16", "got half"], "plan", "--model", model, "--precision", "half")
    fails(1, ["cannot open", "none.json"], "plan", "--model", model, "--precision", tmp_path / "none.json")


def test_casts_are_nodes_until_they_move(model):
    arguments = ["inspect", "graph", "--model", model, "--precision", "mixed", "--after"]
    inserted, fused = ok(*arguments, "insert_casts"), ok(*arguments, "fuse_casts")
    assert " = cast(" in inserted and " in bf16 -> " in inserted
    assert " = cast(" not in fused and ": bf16[" in fused


def train(folder, model, name, precision, *more, steps=8):
    ids = folder / "ids.bin"
    if not ids.exists():
        write_ids(ids, 1200)
    return ["train", "--model", model, "--data", ids, "--out", folder / name, "--batch", "2", "--steps", steps, "--lr", "3e-3",
            "--precision", precision, "--dropout", "0.1", "--clip", "1", *more]


def losses(run):
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("precision", ["mixed", "mixed-bf16", "mixed-fp16"])
def test_resuming_is_exact(tmp_path, model, precision):
    """R6: states are fp32 and those that were in memory, whatever the products take."""
    ok(*train(tmp_path, model, "straight", precision))
    ok(*train(tmp_path, model, "parts", precision, steps=5))
    ok(*train(tmp_path, model, "parts", precision, "--resume", steps=8))
    assert losses(tmp_path / "parts") == losses(tmp_path / "straight")
    for name in ("model.safetensors", "checkpoints/step-8/optimizer.safetensors"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes(), name
    state = ok_json("inspect", "checkpoint", tmp_path / "straight" / "checkpoints" / "step-8" / "optimizer.safetensors")
    assert state["tensors"] and all(tensor["dtype"] in ("F32", "I64") for tensor in state["tensors"])
    described = json.loads((tmp_path / "straight" / "lamina.json").read_text())
    assert described["precision"] == precision and described["precision_map"]["embedding"] == "fp32"
    assert described["arithmetic"]


def test_resuming_in_another_precision_says_so(tmp_path, model):
    ok(*train(tmp_path, model, "run", "mixed"))
    fails(1, ["settings differ", "precision"], *train(tmp_path, model, "run", "fp32", "--resume", steps=12))
    ok(*train(tmp_path, model, "run", "fp32", "--resume", "--allow-changes", steps=12))


def test_a_run_of_one_map_is_that_of_its_word(tmp_path, model):
    ok(*train(tmp_path, model, "word", "mixed-bf16"))
    map_json = write_json(tmp_path / "map.json", {"*": "bf16", "embedding": "fp32"})
    ok(*train(tmp_path, model, "map", map_json))
    assert np.allclose(losses(tmp_path / "map"), losses(tmp_path / "word"), rtol=2.0**-8)


SEEDS = [1, 2, 3]
WINDOW = 20  # steps whose mean is a point of a curve


@pytest.fixture(scope="module")
def demo_runs(tmp_path_factory):
    """A function that trains the demo's model for 300 steps and gives its loss curve, smoothed."""
    folder = tmp_path_factory.mktemp("curves")
    verses = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], capture_output=True, text=True, check=True).stdout
    (folder / "text.txt").write_text(re.sub(r"^[^ ]+:\d+ ", "", verses, flags=re.MULTILINE))
    model = write_config(folder / "model.json", vocab_size=1024, n_positions=128, n_embd=192, n_layer=4, n_head=6, bos_token_id=0,
                         eos_token_id=0)

    def curve(precision, seed):
        out = folder / f"{precision}-{seed}"
        ok("train", "--model", model, "--data", folder / "text.txt", "--out", out, "--steps", 300, "--batch", 16, "--seq", 128,
           "--lr", "2e-3", "--schedule", "cosine", "--warmup", 20, "--weight-decay", "0.1", "--clip", 1, "--seed", seed,
           "--precision", precision, timeout=1800)
        points = np.array(losses(out))
        assert points.shape == (300,) and np.isfinite(points).all()
        return points.reshape(-1, WINDOW).mean(axis=1)

    return curve


@pytest.mark.full
def test_curves_stay_within_the_spread_of_seeds(demo_runs):
    """Of each seed the mixed curve is nearer to fp32's of that seed than fp32's curves of other seeds are among themselves, on
    the whole; and the last point is as low."""
    fp32 = [demo_runs("fp32", seed) for seed in SEEDS]
    spread = max(np.abs(a - b).mean() for a in fp32 for b in fp32)
    ends = [curve[-1] for curve in fp32]
    for precision in ("mixed", "mixed-fp16"):
        for seed, truth in zip(SEEDS, fp32):
            curve = demo_runs(precision, seed)
            print(f"{precision} {seed}: {np.abs(curve - truth).mean():.5f} from fp32, spread {spread:.5f}, last {curve[-1]:.4f}")
            assert np.abs(curve - truth).mean() <= spread
            assert min(ends) - spread <= curve[-1] <= max(ends) + spread
