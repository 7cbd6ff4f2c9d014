"""One layer of GPT-2 in MindSpore, forward and backward in one graph: FusedGPT2Layer against GPT2Layer, in turn, the fastest of
each. Runs in MindSpore's interpreter:

    LAMINA_MINDSPORE_OPS=build/release/python/fused/liblamina_mindspore_ops.so PYTHONPATH=python \\
        "$LAMINA_MINDSPORE_PYTHON" bench/mindspore_layer.py
"""
import argparse
import json
import platform
import statistics
import time
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from lamina.mindspore import AttentionMask, FusedGPT2Layer, GPT2Config, GPT2Layer


class Loss(nn.Cell):
    """The sum of a layer's results, each times a number."""

    def __init__(self, layer, seq):
        super().__init__(auto_prefix=False)
        self.layer, self.mask, self.seq = layer, AttentionMask(seq), seq

    def construct(self, x, factors):
        bias, hidden, rows, _ = self.mask(self.seq)
        return (self.layer(x, (bias, hidden, rows), self.seq) * factors).sum()


def cpu_name():
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def step_of(layer, args):
    """A call that makes one step and waits for it."""
    weights = ms.ParameterTuple(layer.trainable_params())
    gradient = ops.value_and_grad(Loss(layer, args.seq), 0, weights)
    draw = np.random.default_rng(0)
    shape = (args.batch * args.seq, args.width)
    x, factors = (ms.Tensor(draw.standard_normal(shape).astype(np.float32)) for _ in range(2))

    def step():
        start = time.perf_counter()
        loss, _ = gradient(x, factors)
        loss.asnumpy()
        return time.perf_counter() - start

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    config = GPT2Config(n_embd=args.width, n_head=args.heads, n_layer=1, n_positions=args.seq, embd_pdrop=0.0, attn_pdrop=0.0,
                        resid_pdrop=0.0)
    steps = {"plain": step_of(GPT2Layer(config), args), "fused": step_of(FusedGPT2Layer(config), args)}
    for step in steps.values():
        step()
        step()
    seen = {name: [] for name in steps}
    for _ in range(args.rounds):
        for name, step in steps.items():
            seen[name].append(1e3 * step())
    best = {name: min(times) for name, times in seen.items()}
    usual = {name: statistics.median(times) for name, times in seen.items()}
    result = {"cpu": cpu_name(), "mindspore": ms.__version__, "batch": args.batch, "seq": args.seq, "width": args.width,
              "heads": args.heads, "plain_ms": best["plain"], "fused_ms": best["fused"], "ratio": best["plain"] / best["fused"],
              "ratio_of_medians": usual["plain"] / usual["fused"]}
    print(json.dumps(result) if args.json else "\n".join(f"{name}: {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
