"""Whole training steps of GPT-2 in fp32, Lamina and PyTorch eager in turn, each round in fresh processes, so that the
neighbours on a shared machine hit both alike. Reports the fastest step of each, the ratio, and the peak memory of the
processes. PyTorch runs at its best here: sdpa attention, fused AdamW, denormals flushed, gradients set to None."""
import argparse
import json
import os
import subprocess
import sys
import time


def torch_worker(args):
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_positions=1024, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, attn_implementation="sdpa", use_cache=False
    )
    model = transformers.GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, config.vocab_size, (args.batch, args.seq + 1))
    times = []
    for step in range(args.steps + 1):  # the first one allocates and is not counted
        start = time.perf_counter()
        logits = model(ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, config.vocab_size), ids[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
    with open("/proc/self/status", encoding="ascii") as status:
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    print(json.dumps({"step_ms_min": 1e3 * min(times[1:]), "process_peak_bytes": peak, "version": torch.__version__}))


def run(command, environment):
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(args, batch, seq):
    shape = ["--batch", str(batch), "--seq", str(seq), "--steps", str(args.steps), "--threads", str(args.threads)]
    environment = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    ours, theirs = [], []
    for _ in range(args.rounds):
        step = run([args.program, "bench", "step", "--model", "gpt2", *shape, "--json"], environment)
        ours.append(dict(step["runs"][0], cpu=step["cpu"]))
        theirs.append(run([sys.executable, __file__, "--worker", *shape], environment))
    best = min(ours, key=lambda r: r["step_ms_min"])
    lamina, torch = best["step_ms_min"], min(r["step_ms_min"] for r in theirs)
    memory = min(r["process_peak_bytes"] for r in ours) / min(r["process_peak_bytes"] for r in theirs)
    return {
        "cpu": best["cpu"],
        "batch": batch,
        "seq": seq,
        "lamina_ms": round(lamina, 1),
        "torch_ms": round(torch, 1),
        "torch_version": theirs[0]["version"],
        "speed_ratio": round(torch / lamina, 3),
        "peak_fraction": round(best["peak_fraction"], 3),
        "memory_ratio": round(memory, 3),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="build/release/lamina")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--seq", type=int)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    if args.worker:
        torch_worker(args)
        return
    shapes = [(args.batch, args.seq)] if args.batch and args.seq else [(4, 64), (1, 1024)]
    for batch, seq in shapes:
        print(json.dumps(compare(args, batch, seq)), flush=True)


if __name__ == "__main__":
    main()
