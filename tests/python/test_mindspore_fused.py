"""FusedGPT2Layer inside real MindSpore, in graph mode and PyNative: GPT2Layer's results and gradients, its losses, one operator
a cell. What the library computes is compared with PyTorch in test_fused_cells.py."""
from dataclasses import replace

import fused_support as fused
import numpy as np
import pytest
import torch
from fused_support import ATTENTION, MLP, Case
from mindspore_support import arrays, needs_mindspore, run_children
from test_fused_cells import UNIT, attention_cell, keep_gradients, mlp_cell, sizes_of

pytestmark = needs_mindspore

MODES = ("graph", "pynative")
CASES = {"odd": Case(3, 7, 30, 3, 77, mask="padded", scale=10**-0.5, tanh=False),
         "documents": Case(2, 9, 12, 1, 48, mask="documents", scale=0.5, eps=1e-3)}
# In one process, shapes of one width and another number of heads, in both orders: PyNative keeps what it infers.
CASES.update(heads=replace(CASES["odd"], heads=5, scale=6**-0.5), again=replace(CASES["odd"], seed=1))
MODEL = dict(n_embd=24, n_head=3, n_layer=2, n_positions=8, vocab_size=50, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)
MASK = [[0, 0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0, 0], [1] * 8]
SUBS = {"ln_1.gamma": (ATTENTION, "gamma"), "ln_1.beta": (ATTENTION, "beta"), "ln_2.gamma": (MLP, "gamma"), "ln_2.beta": (MLP, "beta"),
        **{"attention." + name: (ATTENTION, name) for name in ATTENTION[2:]}, **{"mlp." + name: (MLP, name) for name in MLP[2:]}}


def config_of(case):
    return dict(n_embd=case.C, n_head=case.heads, n_inner=case.inner, n_layer=1, n_positions=case.T, layer_norm_epsilon=case.eps,
                activation_function="gelu_new" if case.tanh else "gelu", attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)


def inputs_of(case):
    values = {name: case.parameters(names)[short] for name, (names, short) in SUBS.items()}
    values.update(x=case.stream(0), factors=case.stream(1))
    return values if case.mask == "none" else {**values, "mask": case.visible().astype(np.int32)}


def truth_of(case):
    x = torch.from_numpy(case.stream(0)).double().requires_grad_()
    sides = {names: {name: torch.from_numpy(value).double().requires_grad_() for name, value in case.parameters(names).items()}
             for names in (ATTENTION, MLP)}
    between, attention = attention_cell(case, x, sides[ATTENTION])
    y, mlp = mlp_cell(case, between, sides[MLP])
    for part in (attention, mlp):
        keep_gradients(part)
    (y * torch.from_numpy(case.stream(1)).double()).sum().backward()
    found = {"y": y.detach(), "dx": x.grad, **{name: sides[names][short].grad for name, (names, short) in SUBS.items()}}
    sizes = {f"{cell}.{name}": value for cell, part in (("attention", attention), ("mlp", mlp))
             for name, value in sizes_of(case, part).items()}
    return {name: (value.numpy(), sizes.get(name, value).numpy()) for name, value in found.items()}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    if not fused.library_path().is_file():
        pytest.fail(f"no library of fused layers in {fused.library_path()}: make test builds it")
    base, tasks = tmp_path_factory.mktemp("fused"), []
    for mode in MODES:
        (base / mode).mkdir()
        inputs = {f"{name}/{key}": value for name, case in CASES.items() for key, value in inputs_of(case).items()}
        np.savez(base / mode / "cases.npz", **inputs)
        cases = {name: dict(config=config_of(case), seq=case.T) for name, case in CASES.items()}
        tasks.append(("fused", base / mode, dict(cases=cases, model=MODEL, mask=MASK, too_wide=int(mode == "pynative"),
                                                 pynative=mode == "pynative")))
    answers = run_children(tasks, LAMINA_MINDSPORE_OPS=str(fused.library_path()))
    return {mode: (arrays(base / mode / "out.npz"), answer) for mode, answer in zip(MODES, answers)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_those_of_the_plain_layer(results, mode, name):
    """No further from the double result than twice the plain layer, or four units, in the mean of squares."""
    found = results[mode][0]
    for tensor, (truth, size) in truth_of(CASES[name]).items():
        ours, plain = (np.linalg.norm(found[f"{name}/{kind}/{tensor}"] - truth) for kind in ("fused", "plain"))
        assert ours <= max(2.0 * plain, 4.0 * UNIT * np.linalg.norm(size)), (tensor, ours, plain)


@pytest.mark.parametrize("mode", MODES)
def test_ten_losses_agree(results, mode):
    """Each within 16 units of the double result, as test_mindspore.py holds the plain ones to."""
    losses = {kind: np.array(values) for kind, values in results[mode][1]["losses"].items()}
    assert losses["plain"][-1] < losses["plain"][0]
    assert np.abs(losses["fused"] - losses["plain"]).max() <= 32 * UNIT * losses["plain"].max(), losses


@pytest.mark.parametrize("mode", MODES)
def test_a_cell_is_one_operator_each_way(results, mode):
    """Two cells in each of two layers; what is left of matrix products and LayerNorm is the head's."""
    seen = results[mode][1]["profile"]
    assert seen["Custom"] == 8 and seen["MatMul"] == 3 and seen["LayerNorm"] == seen["LayerNormGrad"] == 1, seen
    assert not {"Softmax", "SoftmaxGrad", "GeLU", "GeLUGrad", "Transpose", "Dropout"} & seen.keys(), seen


@pytest.mark.parametrize("mode", MODES)
def test_dropout_is_drawn_anew_and_the_same_on_the_way_back(results, mode):
    seen = results[mode][1]["dropout"]
    assert abs(seen["share"] - 0.25) <= 5 * (0.25 * 0.75 / 64**2) ** 0.5  # of 64 x 64 draws
    assert seen["differs"] and seen["off"] and seen["same_words"] and results[mode][1]["draws"] == 4
    assert seen["scale_gap"] <= 4 * UNIT * seen["largest"]
    assert seen["bias_gap"] <= 64 * 4 * UNIT * 4 / 0.75  # 64 terms of at most some 4 / 0.75


@pytest.mark.parametrize("mode", MODES)
def test_what_the_kernels_would_not_do_is_refused(results, mode):
    said = results[mode][1]["refused"]
    assert "unsupported precision of a fused layer: layer.0.attention.q, expected fp32, got fp16" in said["precision"]
    assert "attention mask has a hole, which fused layers do not take: row 0, query 3, key 2" in said["hole"]
    assert "row 0, query 3, key 1" in said["square"]
    assert "the library of fused layers is missing: " in said["library"] and "/nowhere.so" in said["library"]


def test_wrong_inputs_are_errors(results):
    """A hole that only the operator sees is its code; a wrong shape is told where shapes are inferred."""
    graph, pynative = (results[mode][1]["last"] for mode in MODES)
    assert graph.startswith("RuntimeError") and "lamina_attention_forward" in graph and "is 5" in graph
    assert pynative == "Error: bad input of a fused layer: x, expected shape [B*T, 24], got [8, 25]"
