"""The task "fused" of mindspore_child.py: FusedGPT2Layer beside GPT2Layer inside MindSpore."""
import csv
import os

import mindspore as ms
import numpy as np
from mindspore import nn, ops, profiler

from lamina import mindspore as lm
from lamina.mindspore import fused


def tensor(values, dtype=None):
    return ms.Tensor(np.asarray(values, dtype))


class Loss(nn.Cell):
    """The sum of a layer's results, each times a number; and the results."""

    def __init__(self, layer, seq):
        super().__init__(auto_prefix=False)
        self.layer, self.mask, self.seq = layer, lm.AttentionMask(seq), seq

    def construct(self, x, factors, mask=None):
        bias, hidden, rows, _ = self.mask(self.seq, mask)
        y = self.layer(x, (bias, hidden, rows), self.seq)
        return (y * factors).sum(), y


def layer_of(kind, config, values):
    layer = kind(config)
    for parameter in layer.get_parameters():
        parameter.set_data(tensor(values[parameter.name]))
    return layer


def gradients(layer, case):
    weights = ms.ParameterTuple(layer.trainable_params())
    call = ops.value_and_grad(Loss(layer, case["seq"]), 0, weights, has_aux=True)
    (_, y), (dx, found) = call(tensor(case["x"]), tensor(case["factors"]), tensor(case["mask"]) if "mask" in case else None)
    return {"y": y.asnumpy(), "dx": dx.asnumpy(), **{w.name: g.asnumpy() for w, g in zip(weights, found)}}


def layers(folder, task):
    """y, dx and all gradients of both layers for each case of cases.npz."""
    arrays, out = dict(np.load(folder / "cases.npz")), {}
    for name, settings in task["cases"].items():
        config = lm.GPT2Config(**settings["config"])
        values = {key[len(name) + 1:]: value for key, value in arrays.items() if key.startswith(name + "/")}
        for kind, made in (("plain", lm.GPT2Layer), ("fused", lm.FusedGPT2Layer)):
            found = gradients(layer_of(made, config, values), {**values, "seq": settings["seq"]})
            out.update({f"{name}/{kind}/{key}": value for key, value in found.items()})
    return out


def ten_losses(config, fused_layers, mask):
    model = lm.GPT2LMHeadModel(config, seed=3, fused=fused_layers)
    step = lm.TrainStep(model, lr=1e-2, weight_decay=0.1, clip=1.0)
    ids = np.random.default_rng(0).integers(0, config.vocab_size, np.shape(mask))
    return [step(ids, np.roll(ids, -1, axis=1), mask).loss for _ in range(10)], step


def profile(step, folder):
    """How often each kind of operator runs in one step."""
    ids = np.arange(16).reshape(2, 8)
    step(ids, ids)
    once = profiler.schedule(wait=0, warmup=0, active=1, repeat=1)
    prof = profiler.profile(activities=[profiler.ProfilerActivity.CPU], schedule=once,
                            on_trace_ready=profiler.tensorboard_trace_handler(str(folder / "profile")))
    prof.start()
    step(ids, ids)
    prof.step()
    prof.stop()
    (table,) = (folder / "profile").rglob("cpu_op_type_info_0.csv")
    with open(table, encoding="utf-8") as file:
        return {row["op_type"]: int(row["type_occurrences"]) for row in csv.DictReader(file)}


class Words(nn.Cell):
    """In the place of fused.Seed: the same words for every run."""

    def __init__(self):
        super().__init__()
        self.words = tensor([5, 6], np.int32)

    def construct(self):
        return self.words


def dropout():
    """Attention gives nothing, so what a layer adds is 0 exactly where the MLP's dropout dropped."""
    config = lm.GPT2Config(n_embd=64, n_head=2, n_layer=1, n_positions=16, attn_pdrop=0.5, resid_pdrop=0.25)
    layer = lm.FusedGPT2Layer(config)
    layer.attention.proj.weight.set_data(tensor(np.zeros((64, 64), np.float32)))
    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    factors = np.random.default_rng(1).normal(size=x.shape).astype(np.float32)
    case = {"x": x, "factors": factors, "seq": 16}
    layer.set_train()
    first, second = (gradients(layer, case) for _ in range(2))
    kept = first["y"] != x
    layer.set_train(False)
    off = gradients(layer, case)["y"]
    layer.set_train()
    layer.draw = Words()
    again = [gradients(layer, case)["y"].tobytes() for _ in range(2)]
    return {"share": float(1.0 - kept.mean()), "differs": bool((first["y"] != second["y"]).any()), "off": bool((off != x).all()),
            "scale_gap": float(np.abs((first["y"] - x)[kept] * 0.75 - (off - x)[kept]).max()),
            "largest": float(np.abs(first["y"]).max()), "same_words": again[0] == again[1],
            "bias_gap": float(np.abs(first["mlp.proj.bias"] - (factors * kept / 0.75).sum(0)).max())}


class Seeds(nn.Cell):
    """What two layers of one graph draw."""

    def __init__(self):
        super().__init__()
        self.first, self.second = fused.Seed(), fused.Seed()

    def construct(self):
        return self.first(), self.second()


def different_draws():
    seeds = Seeds()
    return len({tuple(words.asnumpy().tolist()) for _ in range(2) for words in seeds()})


def refused(config):
    """What is said before anything runs."""
    hole, ids = np.array([[1, 1, 0, 1], [1, 1, 1, 1]]), np.zeros((2, 4), np.int32)
    square = np.tril(np.ones((1, 1, 4, 4), np.int32))
    square[0, 0, 3, 1] = 0
    step = lm.TrainStep(lm.GPT2LMHeadModel(config, fused=True))
    calls = {"precision": lambda: lm.GPT2LMHeadModel(config, "mixed-fp16", fused=True), "hole": lambda: step(ids, ids, hole),
             "square": lambda: step(ids, ids, np.where(square, 0.0, -1e9))}
    said = {}
    for name, call in calls.items():
        try:
            said[name] = str(call())
        except lm.Error as error:
            said[name] = str(error)
    return said


def without_library(config):
    """What is said where the library is not there."""
    named = os.environ[fused.VARIABLE]
    os.environ[fused.VARIABLE] = "nowhere.so"
    try:
        return str(lm.FusedGPT2Layer(config))
    except lm.Error as error:
        return str(error)
    finally:
        os.environ[fused.VARIABLE] = named


def last_error(task, config):
    """MindSpore keeps an error for later calls: nothing may come after this."""
    layer = lm.FusedGPT2Layer(config)
    x = tensor(np.zeros((8, config.n_embd + task["too_wide"]), np.float32))
    mask = tensor([[1, 1, 0, 1], [1, 1, 1, 1]], np.int32)
    try:
        return str(Loss(layer, 4)(x, x, mask)[0].asnumpy())
    except (lm.Error, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"


def fused_task(folder, task):
    config = lm.GPT2Config(**task["model"])
    np.savez(folder / "out.npz", **layers(folder, task))
    losses = {}
    for kind in ("plain", "fused"):
        losses[kind], step = ten_losses(config, kind == "fused", np.array(task["mask"]))
    return {"losses": losses, "profile": profile(step, folder), "dropout": dropout(), "draws": different_draws(),
            "refused": {**refused(config), "library": without_library(config)}, "last": last_error(task, config)}
