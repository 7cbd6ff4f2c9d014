"""The library of fused layers (lamina.mindspore.FusedGPT2Layer) without MindSpore, by its C interface: results and gradients
are those of the cells in PyTorch, whatever the threads; what is wrong at the entry is a code and never an overrun."""
import dataclasses
import os
import subprocess
import sys

import fused_support as fused
import numpy as np
import pytest
import torch
from fused_support import ATTENTION, CASES, MLP, Case

UNIT = 2.0**-24
CODES = dict(arguments=1, dtype=2, shape=3, setting=4, mask=5, environment=7)


def attention_cell(case, x, p):
    """The cell in PyTorch, and what is between."""
    h = torch.nn.functional.layer_norm(x, (case.C,), p["gamma"], p["beta"], case.eps)
    part = {name: h @ p[name + ".weight"] + p[name + ".bias"] for name in "qkv"}
    q, k, v = (part[name].reshape(case.B, case.T, case.heads, -1).transpose(1, 2) for name in "qkv")
    visible = torch.from_numpy(case.visible())[:, None]
    weights = (q @ k.transpose(-1, -2) * case.scale).masked_fill(~visible, -1e30).softmax(-1) * visible  # 0 where nothing is seen
    kept = torch.ones_like(weights)
    if case.attn_pdrop > 0.0:
        count = case.heads * case.T * case.T
        factors = [fused.dropout_factors(case.words(), b, 0, count, case.attn_pdrop) for b in range(case.B)]
        kept = torch.from_numpy(np.array(factors)).reshape(weights.shape).to(x.dtype)
    out = (weights * kept) @ v
    part["proj"] = out.transpose(1, 2).reshape(case.B * case.T, case.C) @ p["proj.weight"] + p["proj.bias"]
    return x + residual_dropout(case, part["proj"], 1), {**part, "inner": (h, q, k, v, weights, kept, out)}


def residual_dropout(case, y, site):
    if case.resid_pdrop == 0.0:
        return y
    factors = fused.dropout_factors(case.words(), 0, site, y.numel(), case.resid_pdrop)
    return y * torch.from_numpy(factors).reshape(y.shape).to(y.dtype)


def mlp_cell(case, x, p):
    h = torch.nn.functional.layer_norm(x, (case.C,), p["gamma"], p["beta"], case.eps)
    part = {"fc": h @ p["fc.weight"] + p["fc.bias"]}
    inner = torch.nn.functional.gelu(part["fc"], approximate="tanh" if case.tanh else "none")
    part["proj"] = inner @ p["proj.weight"] + p["proj.bias"]
    return x + residual_dropout(case, part["proj"], 2), part


def score_sizes(case, inner):
    """What is summed, in absolute terms, in the gradients of q and k: weight · (do·v - do·o) · k may cancel to nothing."""
    h, q, k, v, weights, kept, out = (t.detach().abs() for t in inner)
    dout = inner[-1].grad.abs()
    ds = case.scale * weights * (dout @ v.transpose(-1, -2) * kept + (dout * out).sum(-1, keepdim=True))
    flat = lambda t: t.transpose(1, 2).reshape(case.B * case.T, case.C)  # noqa: E731
    sizes = {"q": flat(ds @ k), "k": flat(ds.transpose(-1, -2) @ q)}
    return {**{name + ".bias": d.sum(0) for name, d in sizes.items()}, **{name + ".weight": h.T @ d for name, d in sizes.items()}}


def keep_gradients(part):
    for tensor in (t for name, t in part.items() if name != "inner"):
        tensor.retain_grad()
    if "inner" in part:
        part["inner"][-1].retain_grad()


def sizes_of(case, part):
    """What is summed in gradients of biases and of q and k, once there are gradients."""
    biases = {name + ".bias": t.grad.abs().sum(0) for name, t in part.items() if name != "inner"}
    return {**biases, **(score_sizes(case, part["inner"]) if "inner" in part else {})}


def torch_case(case, cell, dtype):
    """As fused_support.whole_case, and the size of each, by which errors are measured."""
    run, names = {"attention": (attention_cell, ATTENTION), "mlp": (mlp_cell, MLP)}[cell]
    x = torch.from_numpy(case.stream(0)).to(dtype).requires_grad_()
    p = {name: torch.from_numpy(value).to(dtype).requires_grad_() for name, value in case.parameters(names).items()}
    y, part = run(case, x, p)
    keep_gradients(part)
    (y * torch.from_numpy(case.stream(1)).to(dtype)).sum().backward()
    found = {"y": y.detach(), "dx": x.grad, **{name: p[name].grad for name in names}}
    sizes = {**found, **sizes_of(case, part)}
    return [{name: value.double().numpy() for name, value in side.items()} for side in (found, sizes)]


@pytest.mark.parametrize("cell", ["attention", "mlp"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.B}x{case.T}x{case.C}_{case.mask}_{case.resid_pdrop}")
def test_results_and_gradients_are_pytorchs(case, cell):
    """No further from the double result than twice PyTorch in fp32, or four units; in the mean of squares over three seeds."""
    sums = {}
    for seed in range(3):
        case = dataclasses.replace(case, seed=seed)
        ours = fused.whole_case(case, cell)
        (theirs, _), (truth, sizes) = (torch_case(case, cell, dtype) for dtype in (torch.float32, torch.float64))
        for name in truth:
            squares = [np.square(side).sum() for side in (ours[name] - truth[name], theirs[name] - truth[name], sizes[name])]
            sums[name] = sums.get(name, np.zeros(3)) + squares
    for name, (mine, other, size) in sums.items():
        assert np.sqrt(mine) <= max(2.0 * np.sqrt(other), 4.0 * UNIT * np.sqrt(size)), (name, mine, other, size)


def test_a_place_that_sees_nothing_gives_exactly_what_came():
    """But for the bias of the projection."""
    case = CASES[1]
    inputs, results = fused.attention_forward(case)
    nothing = ~case.visible().any(-1).reshape(-1)
    assert nothing.any() and (results[0][nothing] == (inputs[0] + inputs[10])[nothing]).all()
    assert (results[2].reshape(-1)[nothing] == np.tile(np.arange(case.T) + 1, case.B)[nothing]).all()


def run_program(**environment):
    done = subprocess.run([sys.executable, fused.__file__], env={**os.environ, **environment}, capture_output=True, text=True,
                          check=False)
    return done.stdout, done.stderr


def test_threads_change_no_bit():
    digests = {run_program(LAMINA_THREADS=threads)[0] for threads in ("1", "3", "")}
    assert len(digests) == 1 and len(digests.pop()) == 64


@pytest.mark.parametrize("name,value", [("LAMINA_THREADS", "0"), ("LAMINA_THREADS", "2x"), ("LAMINA_ISA", "other")])
def test_an_environment_without_meaning_is_a_code(name, value):
    assert f"('attention_forward', {CODES['environment']})" in run_program(**{name: value})[1]


def code_of(name, arrays, at=None, changed=None, **options):
    arrays = list(arrays)
    if at is not None:
        arrays[at] = changed
    return fused.invoke(name, arrays, **options)


def entries():
    """name: all arguments of a good call."""
    case, out = Case(2, 5, 12, 3, 20), {}
    for name, forward, names in (("attention", fused.attention_forward, ATTENTION), ("mlp", fused.mlp_forward, MLP)):
        inputs, results = forward(case)
        out[name + "_forward"] = [*inputs, *results]
        gradients = [np.empty_like(a) for a in inputs[:1 + len(names)]]
        weights = [a for a in inputs[1:] if a.dtype == np.float32 and a.ndim == 2]
        out[name + "_backward"] = [case.stream(1), *inputs[:3], *weights, *results[1:], *inputs[-2:], *gradients]
    return out


@pytest.mark.parametrize("name", ["attention_forward", "attention_backward", "mlp_forward", "mlp_backward"])
def test_wrong_arguments_are_codes(name):
    arrays = entries()[name]
    assert code_of(name, arrays) == 0
    for count in (0, len(arrays) - 1, len(arrays) + 1):
        assert code_of(name, arrays, count=count) == CODES["arguments"]
    for i, array in enumerate(arrays):
        words = [str(a.dtype) for a in arrays]
        words[i] = "float16"
        assert code_of(name, arrays, dtypes=words) == CODES["dtype"], i
        longer = np.zeros((*array.shape[:-1], array.shape[-1] + 3), array.dtype)
        for wrong in (longer, array[None], array[:0], array.reshape(-1)[:1].reshape(())):
            assert code_of(name, arrays, i, wrong) == CODES["shape"], (i, wrong.shape)


def test_settings_and_masks_without_meaning_are_codes():
    good = entries()
    attention = {0: (np.inf,), 1: (-1.0, np.nan), 2: (1.5,), 4: (2.0,)}
    mlp = {0: (np.nan,), 1: (0.5,), 2: (-0.1,), 3: (np.nan,)}
    for name, at, wrong in (("attention_forward", 13, attention), ("mlp_forward", 8, mlp)):
        for place, values in wrong.items():
            for value in values:
                settings = good[name][at].copy()
                settings.flat[place] = value
                assert code_of(name, good[name], at, settings) == CODES["setting"], (name, place, value)
    for heads, code in ((5, "setting"), (24, "setting"), (4, "shape")):  # 4 are possible, but then `kept` is larger
        assert code_of("attention_forward", good["attention_forward"], 13, np.resize(Case(2, 5, 12, 3, 20).settings()[0], (heads, 5))) == \
            CODES[code], heads
    name, hidden = "attention_forward", good["attention_forward"][11]
    for query, key in ((3, 1), (2, 2), (1, 3)):  # a hole, a query that does not see itself but others, one that sees ahead
        mask = hidden.copy()
        mask[0, 0, query, key] = not mask[0, 0, query, key]
        assert code_of(name, good[name], 11, mask) == CODES["mask"]
    begin = good["attention_backward"][9]
    for value in (-1, 6):
        assert code_of("attention_backward", good["attention_backward"], 9, np.full_like(begin, value)) == CODES["mask"]


def test_only_the_entries_are_seen():
    read = lambda *command: subprocess.run([*command, fused.library_path()], capture_output=True, text=True, check=True)  # noqa: E731
    names = sorted(line.split()[-1] for line in read("nm", "-D", "--defined-only").stdout.splitlines())
    assert names == ["lamina_attention_backward", "lamina_attention_forward", "lamina_mlp_backward", "lamina_mlp_forward"]
    dynamic = read("readelf", "-d").stdout
    assert "NODELETE" in dynamic
    needed = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line]
    assert all(name.startswith(("libstdc++", "libm.", "libgcc_s", "libc.", "ld-linux")) for name in needed), needed
