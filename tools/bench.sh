#!/usr/bin/env bash
# bench.sh PROGRAM PYTHON [MINDSPORE_PYTHON]: the kernels as fractions of this machine's peaks, the tokenizer beside tiktoken,
# what each acceleration is worth, one fused layer beside MindSpore's own where its Python is given, then whole steps in turn with
# PyTorch, with MindSpore likewise, and with llm.c where LAMINA_LLMC names the folder of its sources. JSON of all but the tokenizer
# is in build/bench.
set -euo pipefail
cd "$(dirname "$0")/.."

usage="usage: tools/bench.sh PROGRAM PYTHON [MINDSPORE_PYTHON]"
lamina=${1:?$usage}
export LAMINA_TORCH_PYTHON=${2:?$usage} LAMINA_MINDSPORE_PYTHON=${3:-}
folder=build/bench
mkdir -p "$folder"

"$lamina" bench kernels --json >"$folder/kernels.json"
"$LAMINA_TORCH_PYTHON" bench/tokenizer_against_tiktoken.py --program "$lamina"
"$lamina" bench ablation --batch 4 --seq 64 --json >"$folder/ablation.json"
if [ -n "$LAMINA_MINDSPORE_PYTHON" ]; then
  PYTHONPATH=python LAMINA_MINDSPORE_OPS="$(dirname "$lamina")/python/fused/liblamina_mindspore_ops.so" \
    "$LAMINA_MINDSPORE_PYTHON" bench/mindspore_layer.py --json | tee "$folder/mindspore_layer.json"
fi
tools/bench_table.py "$lamina" "$folder"
