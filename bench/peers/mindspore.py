"""Whole training steps of GPT-2 in MindSpore, for `lamina bench peers`, one for each line on standard input. It is a plain
`nn` GPT-2 in graph mode, loss, gradients, clipping and update in one graph, with what was found fastest on a CPU: fp32, the
fused weight-decay Adam, and the norm by products of rows with themselves (one long fp32 sum is slower, and off by percents).

Defaults of MindSpore that differ from GPT-2 are given: the epsilon of LayerNorm, GELU by tanh. Its fused Adam corrects no
bias; rate, epsilon and decay are given so that the update is AdamW's all the same (`AdamW` below)."""
import json
import math
import os
import sys
import time

import mindspore as ms
import numpy as np
from mindspore import nn, ops


def process_peak_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def normal(shape, deviation, seed):
    draw = np.random.default_rng(seed)
    return ms.Tensor((deviation * draw.standard_normal(shape)).astype(np.float32))


class Dense(nn.Cell):
    """y = x·W + b, W as HuggingFace's GPT-2 stores it: (in, out)."""

    def __init__(self, inputs, outputs, seed):
        super().__init__()
        self.weight = ms.Parameter(normal((inputs, outputs), 0.02, seed), name="weight")
        self.bias = ms.Parameter(ms.Tensor(np.zeros(outputs, np.float32)), name="bias")
        self.product = ops.MatMul()
        self.add = ops.BiasAdd()

    def construct(self, x):
        return self.add(self.product(x, self.weight), self.bias)


class Attention(nn.Cell):
    def __init__(self, width, heads, seq, seed):
        super().__init__()
        self.heads, self.width, self.depth, self.seq = heads, width, width // heads, seq
        self.c_attn = Dense(width, 3 * width, seed)
        self.c_proj = Dense(width, width, seed + 1)
        self.scores, self.values = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul()
        self.softmax = ops.Softmax(-1)
        hidden = np.triu(np.full((seq, seq), -1e9, np.float32), 1)
        self.mask = ms.Tensor(hidden[None, None])
        self.factor = 1.0 / math.sqrt(self.depth)

    def split(self, x):
        return x.reshape((-1, self.seq, self.heads, self.depth)).transpose((0, 2, 1, 3))

    def construct(self, x):
        q, k, v = ops.split(self.c_attn(x), self.width, 1)
        weights = self.softmax(self.scores(self.split(q) * self.factor, self.split(k)) + self.mask)
        out = self.values(weights, self.split(v))
        return self.c_proj(out.transpose((0, 2, 1, 3)).reshape((-1, self.width)))


def layernorm(config):
    return nn.LayerNorm((config["n_embd"],), epsilon=config["layer_norm_epsilon"])  # MindSpore's own is 1e-7


class Block(nn.Cell):
    def __init__(self, config, seq, seed):
        super().__init__()
        width, inner = config["n_embd"], config["n_inner"] or 4 * config["n_embd"]
        self.ln_1 = layernorm(config)
        self.attn = Attention(width, config["n_head"], seq, seed)
        self.ln_2 = layernorm(config)
        self.c_fc = Dense(width, inner, seed + 2)
        self.c_proj = Dense(inner, width, seed + 3)
        self.gelu = nn.GELU(approximate=config["activation_function"] != "gelu")

    def construct(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(self.gelu(self.c_fc(self.ln_2(x))))


class Gpt2(nn.Cell):
    """Token ids and targets (B, T) to the mean loss; the head is the token table again."""

    def __init__(self, config, seq):
        super().__init__()
        self.width = config["n_embd"]
        self.wte = ms.Parameter(normal((config["vocab_size"], self.width), 0.02, 1), name="wte")
        self.wpe = ms.Parameter(normal((config["n_positions"], self.width), 0.02, 2), name="wpe")
        self.h = nn.CellList([Block(config, seq, 10 * (1 + i)) for i in range(config["n_layer"])])
        self.ln_f = layernorm(config)
        self.positions = ms.Tensor(np.arange(seq, dtype=np.int32))
        self.gather, self.logits = ops.Gather(), ops.MatMul(transpose_b=True)

    def construct(self, ids, targets):
        x = self.gather(self.wte, ids, 0) + self.gather(self.wpe, self.positions, 0)
        x = x.reshape((-1, self.width))
        for block in self.h:
            x = block(x)
        return ops.cross_entropy(self.logits(self.ln_f(x), self.wte), targets.reshape((-1,)))


def decays(parameter):
    return len(parameter.shape) > 1  # matrices and tables


class Step(nn.Cell):
    """One graph: loss, gradients, clipping by the global norm and the update."""

    def __init__(self, net, options):
        super().__init__(auto_prefix=False)
        self.net = net
        self.weights = ms.ParameterTuple(net.trainable_params())
        self.moments = self.weights.clone("adam_m", init="zeros")
        self.squares = self.weights.clone("adam_v", init="zeros")
        self.grad = ops.GradOperation(get_by_list=True)
        self.decays = [decays(p) for p in self.weights]
        self.widths = [p.shape[-1] for p in self.weights]
        self.beta1, self.beta2 = options["betas"]
        self.clip = options["clip"]
        self.update = ops.AdamWeightDecay()
        self.dot = ops.BatchMatMul()
        self.no_decay = ms.Tensor(0.0, ms.float32)
        self.beta1_tensor, self.beta2_tensor = (ms.Tensor(b, ms.float32) for b in options["betas"])

    def norm(self, gradients):
        total = ops.zeros((), ms.float32)
        for i in range(len(gradients)):
            g, width = gradients[i], self.widths[i]
            total = total + self.dot(g.reshape((-1, 1, width)), g.reshape((-1, width, 1))).sum()
        return ops.sqrt(total)

    def construct(self, ids, targets, rate, epsilon, decay):
        loss = self.net(ids, targets)
        gradients = self.grad(self.net, self.weights)(ids, targets)
        if self.clip > 0.0:
            factor = ops.minimum(self.clip / (self.norm(gradients) + 1e-6), ms.Tensor(1.0, ms.float32))
        for i in range(len(gradients)):
            g = gradients[i]
            if self.clip > 0.0:
                g = g * factor
            loss = ops.depend(loss, self.update(
                self.weights[i], self.moments[i], self.squares[i], rate, self.beta1_tensor, self.beta2_tensor, epsilon,
                decay if self.decays[i] else self.no_decay, g))
        return loss


class AdamW:
    """Rate, epsilon and decay of step t with which Adam without bias correction makes AdamW's update:
    lr·(m/c1 / (√(v/c2) + eps) + wd·w) = lr'·(m / (√v + eps') + wd'·w)."""

    def __init__(self, options, rate):
        self.options, self.rate, self.done = options, rate, 0

    def next(self):
        self.done += 1
        (beta1, beta2), wd = self.options["betas"], self.options["weight_decay"]
        c1, root = 1.0 - beta1**self.done, math.sqrt(1.0 - beta2**self.done)
        values = (self.rate * root / c1, self.options["eps"] * root, wd * c1 / root)
        return tuple(ms.Tensor(value, ms.float32) for value in values)


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what MindSpore prints is for people

    def say(**values):
        print(json.dumps(values), file=answers, flush=True)

    options = json.loads(sys.argv[1])
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    config, seq = options["config"], options["seq"]
    step = Step(Gpt2(config, seq), options)
    step.set_train()
    adamw = AdamW(options, 1e-4)
    rows = np.random.default_rng(0).integers(0, config["vocab_size"], (options["batch"], seq + 1)).astype(np.int32)
    ids, targets = ms.Tensor(rows[:, :-1]), ms.Tensor(np.ascontiguousarray(rows[:, 1:]))

    def timed():
        start = time.perf_counter()
        step(ids, targets, *adamw.next()).asnumpy()
        return 1e3 * (time.perf_counter() - start)

    warm = [timed() for _ in range(options["warmup"])]
    say(ready=True)
    for _ in sys.stdin:
        say(step_ms=timed())
    say(engine_version=ms.__version__, process_peak_bytes=process_peak_bytes(), compile_ms=max(warm),
        vocab_size=config["vocab_size"], settings="graph mode, jit_level O0, memory level O0, fp32, fused AdamWeightDecay")


if __name__ == "__main__":
    main()
