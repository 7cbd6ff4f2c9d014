"""Whole training steps of GPT-2 in PyTorch, for `lamina bench peers`, one for each line on standard input: at its best on a
CPU, with sdpa attention, fused AdamW, denormals flushed and gradients set to None. Of the vocabulary as it is and padded to a
multiple of 64, the one with the faster steps is taken."""
import contextlib
import gc
import json
import sys
import time

import torch
import transformers

PADDED = 64
AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def process_peak_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def decay_groups(model, decay):
    """Matrices and tables decay; biases and LayerNorm do not."""
    return [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": decay},
        {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0},
    ]


def layers_of(model):
    blocks = [list(block.parameters()) for block in model.transformer.h]
    inside = {id(p) for block in blocks for p in block}
    return [[p for p in model.parameters() if id(p) not in inside], *blocks]


class Steps:
    """A model with its optimizer and rows of ids that mean nothing."""

    def __init__(self, options, vocab_size):
        torch.manual_seed(0)
        config = transformers.GPT2Config.from_dict({**options["config"], "vocab_size": vocab_size})
        config._attn_implementation = "sdpa"
        config.use_cache = False
        self.options, self.vocab_size = options, vocab_size
        self.model = transformers.GPT2LMHeadModel(config).train()
        self.layers = layers_of(self.model)
        self.optimizer = torch.optim.AdamW(decay_groups(self.model, options["weight_decay"]), lr=1e-4,
                                           betas=tuple(options["betas"]), eps=options["eps"], fused=True)
        self.scaler = torch.amp.GradScaler("cpu", enabled=options["precision"] == "fp16")
        self.run = torch.compile(self.model) if options["compile"] else self.model
        rows = options["batch"] * options["accumulate"]
        self.ids = torch.randint(0, options["config"]["vocab_size"], (rows, options["seq"] + 1))

    def loss(self, batch):
        dtype = AUTOCAST[self.options["precision"]]
        with torch.autocast("cpu", dtype=dtype) if dtype else contextlib.nullcontext():
            logits = self.run(batch[:, :-1]).logits
            return torch.nn.functional.cross_entropy(logits.reshape(-1, self.vocab_size), batch[:, 1:].reshape(-1))

    def step(self):
        options = self.options
        for batch in self.ids.split(options["batch"]):
            self.scaler.scale(self.loss(batch) / options["accumulate"]).backward()
        self.scaler.unscale_(self.optimizer)
        if options["clip_layer"] > 0.0:
            for layer in self.layers:
                torch.nn.utils.clip_grad_norm_(layer, options["clip_layer"])
        if options["clip"] > 0.0:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), options["clip"])
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def step_ms(self):
        start = time.perf_counter()
        self.step()
        return 1e3 * (time.perf_counter() - start)


def warmed_up(options, vocab_size):
    """Steps that are ready, the time of the first one, and the fastest of the others."""
    steps = Steps(options, vocab_size)
    first = steps.step_ms()
    return steps, first, min(steps.step_ms() for _ in range(max(1, options["warmup"] - 1)))


def fastest_vocabulary(options):
    own = options["config"]["vocab_size"]
    padded = (own + PADDED - 1) // PADDED * PADDED
    if padded == own:
        return warmed_up(options, own)[:2]
    steps, _, plain_ms = warmed_up(options, own)
    del steps  # two models need not be held
    gc.collect()
    steps, first, padded_ms = warmed_up(options, padded)
    if padded_ms <= plain_ms:
        return steps, first
    del steps
    gc.collect()
    return warmed_up(options, own)[:2]


def main():
    def say(**values):
        print(json.dumps(values), flush=True)

    options = json.loads(sys.argv[1])
    torch.set_num_threads(options["threads"])
    torch.set_flush_denormal(True)
    steps, first = fastest_vocabulary(options)
    say(ready=True)
    for _ in sys.stdin:
        say(step_ms=steps.step_ms())
    say(engine_version=torch.__version__, process_peak_bytes=process_peak_bytes(), compile_ms=first,
        vocab_size=steps.vocab_size,
        settings=f"{'compile' if options['compile'] else 'eager'}, {options['precision']}, sdpa, fused AdamW")


if __name__ == "__main__":
    main()
