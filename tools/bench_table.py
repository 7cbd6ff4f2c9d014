#!/usr/bin/env python3
"""bench_table.py PROGRAM FOLDER: whole steps of training beside other engines, as in the table of the README. The JSON of each
comparison goes to FOLDER/peers-MODEL-BxT-ENGINE-PRECISION.json.

PyTorch is that of LAMINA_TORCH_PYTHON, MindSpore that of LAMINA_MINDSPORE_PYTHON (left out where it is not set), llm.c is the
folder LAMINA_LLMC (the same). All engines take part at the first shape, but none in a precision that the CPU has no arithmetic
for. Beyond it go those in fp32, but none that was more than 5 times slower than the fastest, and PyTorch in lower precision only
where it was faster than in fp32; MindSpore stays out of the largest shape, where it needs more memory than two engines may have
here. Where the CPU multiplies 16-bit numbers faster than fp32, each comparison is made with --precision mixed too. Standard
library only.
"""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

SHAPES = [("gpt2", 4, 64), ("gpt2", 1, 1024), ("gpt2-medium", 1, 512), ("gpt2", 4, 1024)]
NAMES = {"gpt2": "124M", "gpt2-medium": "355M"}
FP32 = ["torch", "torch-compile", "mindspore", "llm.c"]
LOWER = ["torch-bf16", "torch-compile-bf16", "torch-fp16", "torch-compile-fp16"]
FAR_BEHIND = 5.0
STORES = ("bf16store", "f16store")  # 16 bits in memory only: no faster than fp32

# How many times as long a product takes as in fp32.
PRODUCTS = """
import json, sys, time, torch
torch.set_num_threads(int(sys.argv[1]))
def seconds(dtype):
    a, b = torch.randn(256, 768).to(dtype), torch.randn(768, 3072).to(dtype)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - start)
    return min(times)
single = seconds(torch.float32)
print(json.dumps({"bf16": seconds(torch.bfloat16) / single, "fp16": seconds(torch.float16) / single}))
"""


def precisions(program):
    """What Lamina is compared in."""
    done = subprocess.run([program, "doctor", "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return ["fp32"] if json.loads(done.stdout)["chosen"]["mixed"] in STORES else ["fp32", "mixed"]


def compare(program, folder, shape, engine, precision):
    """Lamina's run, the engine's, and the ratio; None where the engine could not run."""
    model, batch, seq = shape
    command = [program, "bench", "peers", "--model", model, "--batch", str(batch), "--seq", str(seq), "--versus", engine, "--json",
               "--precision", precision]
    if engine == "llm.c":
        command += ["--llmc", os.environ["LAMINA_LLMC"]]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode in (130, 143):
        sys.exit(done.returncode)
    if done.returncode != 0:
        print(f"bench_table: {engine} at {batch}x{seq} of {model} could not be measured", file=sys.stderr)
        return None
    (folder / f"peers-{model}-{batch}x{seq}-{engine}-{precision}.json").write_text(done.stdout)
    result = json.loads(done.stdout)
    return {"own": result["runs"][0], "other": result["runs"][1], "ratio": result["ratios"][0]["ratio"]}


def engines_beyond(first):
    """Those that go on after the first shape, from its results by engine."""
    times = {engine: result["other"]["step_ms_min"] for engine, result in first.items()}
    fastest = min([*times.values(), *(result["own"]["step_ms_min"] for result in first.values())], default=0.0)
    single = min((times[engine] for engine in ("torch", "torch-compile") if engine in times), default=0.0)
    return [engine for engine in times if times[engine] <= FAR_BEHIND * fastest and (engine in FP32 or times[engine] < single)]


def emulated():
    """PyTorch's engines in a precision that this CPU has no arithmetic for: minutes for a step, and nothing learned."""
    command = [os.environ["LAMINA_TORCH_PYTHON"], "-c", PRODUCTS, str(len(os.sched_getaffinity(0)))]
    times = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    for precision, ratio in times.items():
        if ratio > FAR_BEHIND:
            print(f"bench_table: without PyTorch in {precision}: a product takes {ratio:.0f} times as long as in fp32", file=sys.stderr)
    return {engine for engine in LOWER if times[engine.rsplit("-", 1)[1]] > FAR_BEHIND}


def header(out):
    print("| model | batch × tokens | versus | precision | Lamina | the other | ratio | share of FMA peak | process memory ÷ the other's |", file=out)
    print("|---|---|---|---|---|---|---|---|---|", file=out, flush=True)


def row(shape, engine, result, out):
    model, batch, seq = shape
    own, other = result["own"], result["other"]
    memory = own["process_peak_bytes"] / other["process_peak_bytes"]
    print(f"| {NAMES[model]} | {batch} × {seq} | {engine} {other['engine_version']} | {own['precision']} | {own['step_ms_min']:.0f} ms | "
          f"{other['step_ms_min']:.0f} ms | {result['ratio']:.2f} | {own['peak_fraction']:.2f} | {memory:.2f} |", file=out, flush=True)


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    absent = {engine for engine, variable in (("mindspore", "LAMINA_MINDSPORE_PYTHON"), ("llm.c", "LAMINA_LLMC"))
              if not os.environ.get(variable)}
    for engine in sorted(absent):
        print(f"bench_table: without {engine}, which is not here", file=sys.stderr)
    absent |= emulated()
    start, engines = time.monotonic(), [engine for engine in FP32 + LOWER if engine not in absent]
    own_precisions = precisions(program)
    header(sys.stdout)
    for shape in SHAPES:
        results = {}
        for engine in engines:
            if shape == SHAPES[-1] and engine == "mindspore":
                continue
            for precision in own_precisions:
                result = compare(program, folder, shape, engine, precision)
                if result:
                    results.setdefault(engine, result)
                    row(shape, engine, result, sys.stdout)
        if shape == SHAPES[0]:
            engines = engines_beyond(results)
    print(f"bench_table: {(time.monotonic() - start) / 60:.0f} minutes, results in {folder}", file=sys.stderr)


if __name__ == "__main__":
    main()
