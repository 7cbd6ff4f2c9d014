#!/usr/bin/env bash
# bench.sh PROGRAM PYTHON: the kernels as fractions of this machine's peaks, the tokenizer beside tiktoken, then whole steps
# in turn with PyTorch and, where LAMINA_LLMC names the folder of its sources, with llm.c.
set -euo pipefail
cd "$(dirname "$0")/.."

lamina=${1:?usage: tools/bench.sh PROGRAM PYTHON}
export LAMINA_TORCH_PYTHON=${2:?usage: tools/bench.sh PROGRAM PYTHON}
peers=(--versus torch)
[ -z "${LAMINA_LLMC:-}" ] || peers+=(--versus llm.c --llmc "$LAMINA_LLMC")

"$lamina" bench kernels
"$LAMINA_TORCH_PYTHON" bench/tokenizer_against_tiktoken.py --program "$lamina"
"$lamina" bench peers --batch 4 --seq 64 "${peers[@]}"
"$lamina" bench peers --batch 1 --seq 1024 --steps 3 --versus torch
