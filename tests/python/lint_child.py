"""What the pinned MindSpore does by default, for test_lint_migration.py: python lint_child.py TASK FOLDER in MindSpore's interpreter.
What is expected to fail comes last, since a failing operator may leave its error behind."""
import inspect
import json
import sys
from functools import reduce
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import mint, nn, ops
from mindspore.experimental import optim

LARGE = 50257 * 768  # GPT-2's table


def tensor(*values):
    return ms.Tensor(np.array(values, np.float32))


def floats(x):
    return [float(value) for value in x.asnumpy().ravel()]


def places(calls):
    """Where each call of the linter's table has its argument."""
    out = {}
    for call in calls:
        target = reduce(getattr, call["callee"].split(".")[1:], ms)
        names = list(inspect.signature(target).parameters)
        out[f"{call['callee']} {call['argument']}"] = names.index(call["argument"].split("|")[0])
    return out


def defaults():
    wanted = [(nn.LayerNorm, "epsilon"), (ops.LayerNorm, "epsilon"), (mint.nn.LayerNorm, "eps"), (nn.GELU, "approximate"),
              (ops.gelu, "approximate"), (nn.Dropout, "keep_prob"), (nn.Dropout, "p"), (ops.Dropout, "keep_prob"),
              (nn.AdamWeightDecay, "eps"), (nn.AdamWeightDecay, "weight_decay"), (optim.AdamW, "eps"), (optim.AdamW, "weight_decay"),
              (ops.cross_entropy, "ignore_index"), (nn.CrossEntropyLoss, "ignore_index"), (nn.CrossEntropyLoss, "reduction"),
              (ms.load_param_into_net, "strict_load"), (ms.load_checkpoint, "crc_check"), (ms.save_checkpoint, "format"),
              (ms.amp.DynamicLossScaleManager, "init_loss_scale"), (ms.amp.FixedLossScaleManager, "loss_scale"),
              (ops.flash_attention_score, "scalar_value")]
    return {f"{target.__name__}.{name}": inspect.signature(target).parameters[name].default for target, name in wanted}


def layers():
    x = tensor(1e-3, -1e-3, 2e-3, -2e-3)
    dense, table = nn.Dense(400, 900), nn.Embedding(900, 400).embedding_table.asnumpy()
    return {"layernorm": floats(nn.LayerNorm((4,))(x)), "layernorm_5": floats(nn.LayerNorm((4,), epsilon=1e-5)(x)),
            "gelu": floats(nn.GELU()(tensor(1.0)))[0], "gelu_exact": floats(nn.GELU(approximate=False)(tensor(1.0)))[0],
            "ops.gelu": floats(ops.gelu(tensor(1.0)))[0], "ops.GeLU": floats(ops.GeLU()(tensor(1.0)))[0],
            "dense": [float(np.abs(p.asnumpy()).max()) for p in (dense.weight, dense.bias)], "dense_shape": list(dense.weight.shape),
            "dense_std": float(dense.weight.asnumpy().std()), "table_std": float(table.std()),
            "names": sorted(p.name for p in nn.SequentialCell(nn.LayerNorm((4,)), nn.Embedding(2, 2)).get_parameters())}


def dropouts():
    ones, out = ms.Tensor(np.ones(1000000, np.float32)), {}
    for name, cell in (("p", nn.Dropout(p=0.1)), ("keep_prob", nn.Dropout(keep_prob=0.9)), ("place", nn.Dropout(0.1)),
                       ("both", nn.Dropout(keep_prob=0.5, p=0.1))):
        out[name] = [cell.training, float((cell(ones).asnumpy() != 0).mean())]
        cell.set_train()
        out[name].append(float((cell(ones).asnumpy() != 0).mean()))
    out["primitive"] = float((ops.Dropout(keep_prob=0.9)(ones)[0].asnumpy() != 0).mean())
    return out


def train_modes():
    net = nn.SequentialCell(nn.Dense(2, 2), nn.Dropout(p=0.5))
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    step(tensor([1, 2]), tensor([1, 2]))
    ms.value_and_grad(net, None, net.trainable_params())(tensor([1, 2]))
    before = net.training
    rows = ms.dataset.NumpySlicesDataset((np.ones((2, 2), np.float32),) * 2, shuffle=False).batch(2)
    ms.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1)).train(1, rows)
    return [before, net.training]


def updates(make, name="w", gradients=(1.0, -2.0, 0.5)):
    weight = ms.Parameter(tensor(1.0), name=name)
    rule, out = make([weight]), []
    for gradient in gradients:
        rule((tensor(gradient),))
        out.append(floats(weight)[0])
    return out


def optimizers():
    fused = lambda p: nn.AdamWeightDecay(p, learning_rate=0.1, eps=1e-8, weight_decay=0.01)  # noqa: E731
    return {"AdamWeightDecay": updates(fused), "AdamW": updates(lambda p: optim.AdamW(p, lr=0.1, eps=1e-8, weight_decay=0.01)),
            "decays": {name: updates(fused, name, (0.0,))[0] != 1.0 for name in ("w", "dense.bias", "x.gamma", "sigbeta.w", "b.eta")},
            "states": sorted(p.name.split(".")[0] for p in nn.AdamWeightDecay([ms.Parameter(tensor(1.0), name="w")]).get_parameters())}


def norms():
    values = np.abs(np.random.default_rng(0).normal(size=LARGE)).astype(np.float32)
    x, truth = ms.Tensor(values), float(np.square(values, dtype=np.float64).sum())
    # Not by L2Loss, as was long said.
    clipped = ops.clip_by_global_norm((x,), 1.0)[0].asnumpy()
    return {"l2loss": 2.0 * floats(ops.L2Loss()(x))[0] / truth, "reduce_sum": floats(ops.ReduceSum()(x * x))[0] / truth,
            "clipped": float(np.square(clipped, dtype=np.float64).sum())}


class Tied(nn.Cell):
    def __init__(self, how):
        super().__init__()
        self.wte, self.head = nn.Embedding(5, 4), nn.Dense(4, 5, has_bias=False)
        if how == "assign":
            self.head.weight = self.wte.embedding_table
        if how == "set_data":
            self.head.weight.set_data(self.wte.embedding_table)
        if how == "parameter":
            self.head.weight = ms.Parameter(self.wte.embedding_table.value(), name="head.weight")

    def construct(self, ids):
        return ops.square(self.head(self.wte(ids))).sum()


def ties():
    out = {}
    for mode in (ms.PYNATIVE_MODE, ms.GRAPH_MODE):
        ms.set_context(mode=mode)
        for how in ("assign", "set_data", "parameter"):
            net = Tied(how)
            step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 10.0))
            step(ms.Tensor(np.array([1, 2], np.int32)))
            same = bool((net.head.weight.asnumpy() == net.wte.embedding_table.asnumpy()).all())
            out[f"{how} {mode}"] = [[p.name for p in net.trainable_params()], same]
    ms.set_context(mode=ms.PYNATIVE_MODE)
    return out


def losses():
    logits = tensor([1, 2, 3], [4, 5, 9])
    targets = ms.Tensor(np.array([1, -100], np.int32))
    return {"cross_entropy": floats(ops.cross_entropy(logits, targets))[0], "CrossEntropyLoss": floats(nn.CrossEntropyLoss()(logits, targets))[0],
            "rows": floats(nn.SoftmaxCrossEntropyWithLogits(sparse=True)(logits, targets))}


def masks():
    cell, x = nn.MultiheadAttention(4, 1, batch_first=True), ms.Tensor(np.random.default_rng(0).normal(size=(1, 3, 4)), ms.float32)
    hidden = ms.Tensor(np.triu(np.ones((3, 3), bool), 1))
    weights = cell(x, x, x, attn_mask=hidden, need_weights=True)[1].asnumpy()[0]
    return {"hidden": float(np.abs(np.triu(weights, 1)).max()), "fp16": [str(v) for v in tensor(-1e10, -1e4).astype(ms.float16).asnumpy()]}


def files(folder):
    net = nn.Dense(2, 2)
    named = lambda front, names: {front + n: ms.Parameter(ms.Tensor(np.ones(getattr(net, n).shape, np.float32)), name=front + n) for n in names}  # noqa: E731
    out = {"missing": ms.load_param_into_net(net, named("", ["weight"])),
           "prefix": ms.load_param_into_net(net, named("transformer.", ["weight", "bias"])), "loaded": floats(net.bias)}
    half = {"weight": ms.Parameter(ms.Tensor(np.full((2, 2, 1), 0.1, np.float16)), name="weight")}
    out["half"] = [ms.load_param_into_net(net, half), floats(net.weight)[0]]
    cells = [{"name": "empty", "data": ms.Tensor(np.zeros((0, 3), np.float32))}, {"name": "one", "data": tensor(1.0)},
             {"name": "scalar", "data": ms.Tensor(1.0, ms.float32)}]
    path = str(folder / "a.ckpt")
    ms.save_checkpoint(cells, path)
    out["saved"] = {name: list(p.shape) for name, p in ms.load_checkpoint(path).items()}
    return out


def amp_types():
    """fp16 ends at 65504, which fp32 and bf16 do not."""
    out = {}
    for level in ("O0", "O1", "O2", "O3", "auto"):
        net = ms.amp.auto_mixed_precision(nn.Dense(2, 1, weight_init="ones"), level)
        out[level] = bool(np.isinf(net(tensor([60000, 60000])).asnumpy()).all())
    return out


def failures():
    half = ms.Tensor(np.ones((2, 2), np.float32)).astype(ms.bfloat16)
    x, dense = tensor([1, 2]), nn.Dense(2, 2)
    optimizer = nn.SGD(dense.trainable_params(), 0.1)
    build = lambda level: ms.amp.build_train_network(nn.Dense(2, 2), optimizer, nn.MSELoss(), level=level)  # noqa: E731
    calls = {"O2": lambda: build("O2"), "O3": lambda: build("O3"), "Model": lambda: ms.Model(dense, nn.MSELoss(), optimizer, amp_level="O2"),
             "mean": lambda: nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")(x, ms.Tensor(np.array([-100], np.int32))).asnumpy(),
             "layer_norm": lambda: ops.layer_norm(x, (2,)).asnumpy(),
             "mint_layer_norm": lambda: mint.nn.LayerNorm(2)(x).asnumpy(), "mint_gelu": lambda: mint.nn.functional.gelu(x).asnumpy(),
             "mint_GELU": lambda: mint.nn.GELU()(x).asnumpy(), "flash": lambda: ops.flash_attention_score(*[x.reshape(1, 1, 2)] * 3, 1)[3].asnumpy(),
             "mint_adamw": lambda: mint.optim.AdamW(dense.trainable_params())([ops.ones_like(p) for p in dense.trainable_params()]),
             "bf16": lambda: ops.MatMul()(half, half).asnumpy()}
    out = {}
    for name, call in calls.items():
        try:
            call()
            ms.runtime.synchronize()
            out[name] = None
        except Exception as error:
            out[name] = f"{type(error).__name__}: {error}"[:400]
    return out


def main(folder):
    ms.runtime.launch_blocking()  # before anything runs; else an operator's error may reach the call after it
    calls = json.loads((folder / "task.json").read_text())
    out = {"version": ms.__version__, "places": places(calls), "defaults": defaults(), "layers": layers(), "dropouts": dropouts(),
           "train": train_modes(), "optimizers": optimizers(), "norms": norms(), "ties": ties(), "losses": losses(), "masks": masks(), "amp": amp_types(),
           "files": files(folder), "failures": failures()}
    (folder / "out.json").write_text(json.dumps(out, default=str))


if __name__ == "__main__":
    main(Path(sys.argv[2]))
