#!/usr/bin/env bash
# bench.sh PROGRAM PYTHON: the kernels as fractions of this machine's peaks, the tokenizer beside tiktoken, then whole
# steps in turn with PyTorch.
set -euo pipefail
cd "$(dirname "$0")/.."

lamina=${1:?usage: tools/bench.sh PROGRAM PYTHON}
python=${2:?usage: tools/bench.sh PROGRAM PYTHON}
"$lamina" bench kernels
"$python" bench/tokenizer_against_tiktoken.py --program "$lamina"
"$python" bench/step_against_torch.py --program "$lamina"
