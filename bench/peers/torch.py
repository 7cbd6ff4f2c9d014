"""Whole training steps of GPT-2 in PyTorch, for `lamina bench peers`, one for each line on standard input: at its best on a
CPU, with sdpa attention, fused AdamW, denormals flushed and gradients set to None."""
import json
import sys
import time

import torch
import transformers


def say(**values):
    print(json.dumps(values), flush=True)


def process_peak_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def main():
    options = json.loads(sys.argv[1])
    torch.set_num_threads(options["threads"])
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    config = transformers.GPT2Config.from_dict(options["config"])
    config._attn_implementation = "sdpa"
    config.use_cache = False
    model = transformers.GPT2LMHeadModel(config).train()
    blocks = [list(block.parameters()) for block in model.transformer.h]
    inside = {id(p) for block in blocks for p in block}
    layers = [[p for p in model.parameters() if id(p) not in inside], *blocks]
    decays = [  # of matrices and tables
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": options["weight_decay"]},
        {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(decays, lr=1e-4, betas=tuple(options["betas"]), eps=options["eps"], fused=True)
    run = torch.compile(model) if options["compile"] else model
    rows = options["batch"] * options["accumulate"]
    ids = torch.randint(0, config.vocab_size, (rows, options["seq"] + 1))

    def step():
        for batch in ids.split(options["batch"]):
            logits = run(batch[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.reshape(-1, config.vocab_size), batch[:, 1:].reshape(-1))
            (loss / options["accumulate"]).backward()
        if options["clip_layer"] > 0.0:
            for layer in layers:
                torch.nn.utils.clip_grad_norm_(layer, options["clip_layer"])
        if options["clip"] > 0.0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), options["clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    times = []
    for _ in range(options["warmup"]):
        start = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - start))
    say(ready=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        step()
        say(step_ms=1e3 * (time.perf_counter() - start))
    say(engine_version=torch.__version__, process_peak_bytes=process_peak_bytes(), compile_ms=max(times))


main()
