"""Whole training steps of GPT-2 in MindSpore, for `lamina bench peers`, one for each line on standard input: the cells and the
step of `lamina.mindspore`, in graph mode. Loss, gradients, clipping and update are one graph, with what was found fastest on a
CPU: fp32, the fused weight-decay Adam, and the norm by products of rows with themselves."""
import json
import os
import sys
import time

import mindspore as ms
import numpy as np

from lamina.mindspore import GPT2Config, GPT2LMHeadModel, TrainStep

ADAMW = ("betas", "eps", "weight_decay", "clip")


def process_peak_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def make_step(options):
    """Without dropout, as every engine of the bench."""
    without = dict(options["config"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = GPT2LMHeadModel(GPT2Config.from_dict(without))
    return TrainStep(model, lr=1e-4, **{name: options[name] for name in ADAMW})


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what MindSpore prints is for people

    def say(**values):
        print(json.dumps(values), file=answers, flush=True)

    options = json.loads(sys.argv[1])
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    step = make_step(options)
    vocabulary = options["config"]["vocab_size"]
    rows = np.random.default_rng(0).integers(0, vocabulary, (options["batch"], options["seq"] + 1)).astype(np.int32)
    ids, targets = ms.Tensor(rows[:, :-1]), ms.Tensor(np.ascontiguousarray(rows[:, 1:]))

    def timed():
        start = time.perf_counter()
        step(ids, targets)
        return 1e3 * (time.perf_counter() - start)

    warm = [timed() for _ in range(options["warmup"])]
    say(ready=True)
    for _ in sys.stdin:
        say(step_ms=timed())
    say(engine_version=ms.__version__, process_peak_bytes=process_peak_bytes(), compile_ms=max(warm),
        vocab_size=vocabulary, settings="graph mode, jit_level O0, memory level O0, fp32, fused AdamWeightDecay")


if __name__ == "__main__":
    main()
