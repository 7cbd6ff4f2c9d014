"""`lamina.mindspore` inside real MindSpore, on its CPU backend: the cells are HuggingFace's GPT-2, a step is PyTorch's and
Lamina's, masks, precision and dropout mean what they mean here, in graph mode and PyNative. Files: test_mindspore_files.py."""
import numpy as np
import parity_support as parity
import pytest
import test_parity
import tiny
import torch
from mindspore_support import arrays, needs_mindspore, run_children
from parity_support import Run
from test_parity import EPS, UNIT, VARIANTS, Distances

pytestmark = needs_mindspore

PLAIN = {f"graph{i}": [Run(seed=seed, config=VARIANTS[i], eps=EPS) for seed in range(3)] for i in range(3)}
SHORT = {"pynative": [Run(seed=seed, steps=2, warmup=0, config=VARIANTS[1], eps=EPS) for seed in range(2)]}
HALF = {"fp16": [Run(seed=seed, steps=3, config=VARIANTS[0], eps=EPS, precision="mixed-fp16") for seed in range(3)]}
PARTS = {"parts": [Run(seed=seed, steps=3, accumulate=3, config=VARIANTS[0], eps=EPS) for seed in range(3)]}  # unevenly filled
RUNS = {**PLAIN, **SHORT, **HALF, **PARTS}

BEHAVIOUR = {
    "prompt": tiny.PROMPT,
    "adamw": dict(lr=0.1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, gradients=[1.0, -2.0, 0.5]),
    "losses": {
        "prompt": {"ids": [tiny.PROMPT[:-1]], "targets": [tiny.PROMPT[1:]]},
        # Case N7: padding is the end id, and both true ends count.
        "ends": {"ids": [[5, 17, 0, 0], [47, 30, 79, 88]], "targets": [[17, 96, 96, 96], [30, 79, 88, 96]],
                 "mask": [[1, 1, 0, 0], [1, 1, 1, 1]]},
        "ignored": {"ids": [[5, 17]], "targets": [[-100, -1]]},
    },
    "forms": {"ids": [[96, 96, 96, 3, 91], [47, 30, 79, 88, 91]], "mask": [[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]]},
}


def save_run(run, folder):
    """The model and the batches of a run; returns its settings."""
    folder.mkdir(parents=True, exist_ok=True)
    parity.save_inputs(run, folder)
    np.savez(folder / "tokens.npz", **parity.make_batches(run, run.config.get("vocab_size", parity.TINY["vocab_size"])))
    return dict(betas=run.betas, eps=run.eps, weight_decay=run.weight_decay, clip=run.clip,
                rates=[run.rate(step) for step in range(1, run.steps + 1)])


def parity_task(name, folder):
    settings = [save_run(run, folder / str(i)) for i, run in enumerate(RUNS[name])]
    half = RUNS[name][0].precision != "fp32"
    return "parity", folder, dict(runs=settings, precision="mixed-fp16" if half else None, pynative=name == "pynative",
                                  accumulate=RUNS[name][0].accumulate)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """These tensors are too small for two."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Every task's folder and answer, by name."""
    base = tmp_path_factory.mktemp("mindspore")
    tasks = {name: parity_task(name, base / name) for name in RUNS}
    tiny.write(base / "behaviour" / "tiny")
    tasks["behaviour"] = "behaviour", base / "behaviour", dict(BEHAVIOUR, pynative=True)
    answers = run_children(list(tasks.values()))
    return {name: (base / name, answer) for name, answer in zip(tasks, answers)}


class InexactSoftmax:
    """PyTorch with an exponential as inexact as the one of MindSpore's CPU backend, whose error was measured: what both are
    held to. Everything else is PyTorch's."""

    def __init__(self, error):
        self.error, self.plain = error, torch.nn.functional.softmax
        self.draw = torch.Generator().manual_seed(0)

    def __enter__(self):
        torch.nn.functional.softmax = self.softmax

    def __exit__(self, *_):
        torch.nn.functional.softmax = self.plain

    def softmax(self, scores, *args, **options):
        weights = self.plain(scores, *args, **options)
        return weights * (1.0 + self.error * torch.randn(weights.shape, generator=self.draw)).to(weights.dtype)


def allowed(theirs, truth, unit=UNIT):
    """How far a loss may be from the double result."""
    return np.maximum(2.0 * np.abs(theirs["loss"] - truth["loss"]), 16.0 * unit * np.abs(truth["loss"]))


def compare(results, name, unit=UNIT):
    folder, answer = results[name]
    error = results["graph0"][1]["exponential"]
    assert UNIT / 4 < error < 64 * UNIT
    distances = Distances()
    for i, run in enumerate(RUNS[name]):
        ours = arrays(folder / str(i) / "out.npz")
        with InexactSoftmax(error):
            theirs = parity.run_torch(run, torch.float32)
        truth = parity.run_torch(run, torch.float64)
        assert ours.keys() == truth.keys()
        seen = parity.seen_places(run, parity.make_batches(run, truth["logits"].shape[-1]))
        for tensor in truth:
            if tensor in ("loss", "grad_norm"):
                continue
            sides = [parity.without_key_bias(tensor, side[tensor]) for side in (ours, theirs, truth)]
            distances.add(tensor, *([side[seen] for side in sides] if tensor == "logits" else sides))
        assert (np.abs(ours["loss"] - truth["loss"]) <= allowed(theirs, truth, unit)).all(), (ours["loss"], truth["loss"])
        norms = ours["grad_norm"] / truth["grad_norm"] - 1.0
        assert np.abs(norms).max() <= 64.0 * unit, norms
    assert not list(distances.failures(unit))


@pytest.mark.parametrize("name", [*PLAIN, *SHORT, *PARTS])
def test_logits_gradients_and_steps_are_pytorchs(results, name):
    compare(results, name)


def test_fp16_is_as_close_as_pytorchs_autocast(results):
    compare(results, "fp16", test_parity.UNIT_16["mixed-fp16"])
    assert results["fp16"][1]["scale"] == 65536.0


@pytest.mark.parametrize("name", PLAIN)
def test_ten_losses_are_laminas(results, build_dir, tmp_path, name):
    """Both lie within their distance of the double result, so within twice that of each other."""
    for i, run in enumerate(RUNS[name]):
        lamina = parity.run_parity(build_dir, run, tmp_path, "fast")["loss"]
        ours = arrays(results[name][0] / str(i) / "out.npz")["loss"]
        assert np.abs(ours - lamina).max() <= 32.0 * UNIT * np.abs(lamina).max()


def test_micro_batches_change_nothing_but_roundings(results):
    """Both lie within their distance of the double result, so within twice that of each other."""
    folder, answer = results["parts"]
    parts, whole = arrays(folder / "0" / "out.npz")["loss"], np.array(answer["in_one"])
    assert np.abs(parts - whole).max() <= 32.0 * UNIT * whole.max()


@pytest.mark.parametrize("name", ["graph0", "pynative", "parts"])
def test_a_step_that_is_not_finite_changes_no_bit(results, name):
    answer = results[name][1]
    assert answer["updates"] == RUNS[name][0].steps and answer["skips"]["updates"] == answer["updates"]
    assert answer["skips"]["first"] is False and answer["skips"]["same"]
    assert "expected at most 1" in answer["skips"]["second"] and "first in the gradient of" in answer["skips"]["second"]


def test_the_update_is_adamws(results):
    """Weights near 1, updates of at most a tenth: half a unit for each weight stored, and eight roundings of each update."""
    case = dict(BEHAVIOUR["adamw"])
    gradients, weight = case.pop("gradients"), torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = torch.optim.AdamW([weight], **case)
    for step, (gradient, ours) in enumerate(zip(gradients, results["behaviour"][1]["adamw"]), 1):
        weight.grad = torch.full((1,), gradient, dtype=torch.float64)
        optimizer.step()
        assert abs(ours - weight.item()) <= step * (0.5 + 0.1 * 8) * UNIT, step


def test_losses_of_the_cases(results):
    losses = results["behaviour"][1]["losses"]
    for name, loss, count in (("prompt", tiny.PROMPT_LOSS, 11), ("ends", 5.097026, 6)):
        assert abs(losses[name][0] - loss) <= 16 * UNIT * loss + 5e-7 and losses[name][1] == count
    assert losses["ignored"] == [0.0, 0.0]


def test_masks_of_every_form_are_one_mask(results):
    found = arrays(results["behaviour"][0] / "out.npz")
    forms = {name: values for name, values in found.items() if name.startswith("form_")}
    assert len(forms) == 9 and np.isfinite(found["form_int"]).all()
    for name, values in forms.items():
        assert values.tobytes() == forms["form_int"].tobytes(), name


def test_left_padding_changes_nothing(results):
    """Case N8: each row as alone, positions counted from its first id."""
    found = arrays(results["behaviour"][0] / "out.npz")
    for row, begin in enumerate((3, 0)):
        alone = found[f"alone_{row}"][0]
        assert np.abs(found["form_int"][row, begin:] - alone).max() <= 32 * UNIT * np.abs(alone).max()


@pytest.mark.parametrize("kind", ["row", "half"])
def test_a_row_that_sees_nothing_is_zero(results, kind):
    found = arrays(results["behaviour"][0] / "out.npz")
    masked, whole = found[f"{kind}_masked"], found[f"{kind}_whole"]
    assert (masked[:, :, 2] == 0).all() and np.isfinite(masked).all() and not (whole[:, :, 2] == 0).any()
    others = [0, 1, 3, 4]
    assert masked[:, :, others].tobytes() == whole[:, :, others].tobytes()
    for name in "qkv":
        assert (found[f"{kind}_grad_{name}"] == 0).all(), name


def test_dropout_counts_what_it_drops(results):
    """Case M12."""
    shares = results["behaviour"][1]["dropout"]
    assert all(shares[f"eval_{p}"] == [1.0] for p in (0.0, 0.1, 1.0))
    assert shares["train_0.0"]["values"] == [1.0] and shares["train_1.0"]["values"] == [0.0]
    kept, scaled = shares["train_0.1"]["kept"], shares["train_0.1"]["values"][1]
    assert abs(kept - 0.9) <= 0.002 and abs(scaled * 0.9 - 1.0) <= 2 * UNIT


def test_initial_values_are_gpt2s(results):
    initial = results["behaviour"][1]["initial"]
    assert initial["same"] and not initial["other"]
    assert initial["names"][:3] == ["embedding.token", "embedding.position", "layer.0.ln_1.gamma"]
    for name, deviation in initial["deviations"].items():
        if name.endswith((".bias", ".beta", ".gamma")):
            assert deviation == 0.0 and initial["means"][name] == (1.0 if name.endswith("gamma") else 0.0), name
            continue
        expected = 0.05 / 4.0 if ".proj." in name else 0.05  # 4 = √(2·8 layers)
        assert abs(deviation / expected - 1.0) <= 0.05, name


def test_ascend_takes_its_fused_operator(results):
    """Its signature in the wheel, and that our call of it means what the plain operators do. It was not run on Ascend."""
    fused = results["behaviour"][1]["fused"]
    wanted = ["query", "key", "value", "head_num", "attn_mask", "keep_prob", "scalar_value", "input_layout", "sparse_mode"]
    assert [name for name in fused["signature"] if name in wanted] == wanted
    assert fused["chosen"] == dict(cpu="Core", ascend="FusedCore", fp32="Core", dropout="Core", upcast="Core")
    assert fused["call"] == {"dtype": "Float16", "heads": 2, "layout": "BNSD", "mask": [2, 1, 5, 5]}
    assert fused["gap"] <= 8 * 2.0**-11 * fused["largest"]


def test_a_batch_that_fits_not_is_refused(results):
    words = [("targets", "row 0, place 1", "97"), ("ids", "row 0, place 0", "-1"), ("(1, 2)", "(1, 1)"), ("(2,)",), ("(1, 17)", "16"),
             ("a row or more", "(0, 2)"), ("ids", "rows of one length"),
             *(("position_ids", "row 0, place 1", "from 0 to 15", got) for got in ("-1", "16")), ("position_ids", "integers", "float64"),
             ("position_ids", "(1, 2)", "(2,)"), ("position_ids", "(1, 2)", "(2, 2)"), ("position_ids", "rows of one length")]
    for said, expected in zip(results["behaviour"][1]["refused"], words, strict=True):
        assert said.startswith("bad batch: ") and all(word in said for word in expected), said
    assert results["behaviour"][1]["positions"] == [2, 2]


def test_values_of_wrong_types_and_weights_that_are_not_finite_are_refused(results):
    said = dict(results["behaviour"][1]["values"])
    assert said.pop("written") is False
    config = "bad model config: {}, expected {}, got {}".format
    words = {"attn_pdrop": config("attn_pdrop", "a number", "None"), "layer_norm_epsilon": config("layer_norm_epsilon", "a number", "'1e-5'"),
             "activation_function": config("activation_function", "a text", "None"),
             "scale_attn_weights": config("scale_attn_weights", "true or false", "0"), "bos_token_id": "an id from 0 on or None, got 'a'",
             "dict": "config: expected an object, got a list of 0 entries", "dtype": "dtype, expected fp32, fp16, bf16, got 'fp8'",
             "theirs": "got none of them but pytorch_model.bin (lamina convert ", "file": "expected a folder", "state_file": "expected a folder",
             "nan": "step 0: layer.1.mlp.fc.weight, expected finite numbers, got nan",
             "inf": "layer.1.mlp.fc.weight, expected finite numbers, got inf", "half": "layer.1.mlp.fc.weight: expected values within fp16"}
    assert said.keys() == words.keys()
    for name, expected in words.items():
        assert expected in said[name] and "\n" not in said[name], said[name]


def test_nothing_compiled_is_loaded(results):
    assert results["behaviour"][1]["modules"] == {"extension": False, "dir": True}


def test_a_step_refuses_settings_without_meaning(results):
    names = ["eps", "clip", "weight_decay", "weight_decay", "betas", "betas", "betas", "max_skips", "accumulate"]
    for said, name in zip(results["behaviour"][1]["settings"], names, strict=True):
        assert f"bad value: {name}, expected" in said


def test_steps_after_an_evaluation_without_targets_and_with_masks(results):
    steps = results["behaviour"][1]["steps"]
    assert steps["empty"] == [0, True, True, 1]  # tokens, finite, the same bits, updates
    assert steps["losses"][0] != steps["losses"][1]  # dropout goes on after set_train(False)
    said, count = steps["rate"]
    assert "bad value: lr of step 5, expected a finite number" in said and count == 4
    assert "to 3.4028234663852886e+38" in steps["large_rate"]
    assert steps["one_row"] == 8
    words = ["value without meaning: place (0, 0), expected 0 (visible), or -10000 and less (masked), got -1000",
             "value without meaning: place (0, 1), expected 0 or 1, got -10000", "wrong shape: expected (2, 4)",
             "value without meaning: place (0, 1), expected 0 or 1, got 0.5", "can be read in two ways"]
    for said, expected in zip(steps["masks"], words, strict=True):
        assert expected in said


def logits_and_losses(run, dtype):
    found = parity.run_torch(run, dtype)
    return {name: found[name] for name in ("logits", "loss", "grad_norm")}


@pytest.mark.full
def test_full_gpt2(build_dir, tmp_path):
    """GPT-2 124M, one process after the other, none above 8 GB."""
    run = Run(seed=1, batch=1, seq=64, steps=10, config=test_parity.GPT2, deviation=0.02, eps=EPS)
    (answer,) = run_children([("large", tmp_path, dict(runs=[save_run(run, tmp_path)], pynative=False))])
    ours = arrays(tmp_path / "out.npz")
    with InexactSoftmax(answer["exponential"]):
        theirs = logits_and_losses(run, torch.float32)
    truth, lamina = logits_and_losses(run, torch.float64), parity.run_parity(build_dir, run, tmp_path, "fast")["loss"]
    distances = Distances()
    distances.add("logits", ours["logits"], theirs["logits"], truth["logits"])
    assert not list(distances.failures())
    assert (np.abs(ours["loss"] - truth["loss"]) <= allowed(theirs, truth)).all(), (ours["loss"], theirs["loss"], truth["loss"])
    assert (np.abs(ours["loss"] - lamina) <= 2.0 * allowed(theirs, truth)).all(), (ours["loss"], lamina)
    assert np.abs(ours["grad_norm"] / truth["grad_norm"] - 1.0).max() <= 64.0 * UNIT
