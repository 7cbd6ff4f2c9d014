#!/usr/bin/env bash
# demo.sh PROGRAM: trains a small GPT on the King James Bible as Debian ships it (bible-kjv) and lets it write a paragraph.
# Everything it makes is under build/demo.
set -euo pipefail
cd "$(dirname "$0")/.."

lamina=${1:?usage: tools/demo.sh PROGRAM}
folder=build/demo
run=$folder/run
steps=${LAMINA_DEMO_STEPS:-500}
mkdir -p "$folder"
rm -rf "$run"

# One verse a line, without its reference; an empty line before each chapter.
bible -f gen1:1-rev22:21 | sed -E 's/^[^ ]+:1 /\n&/; s/(^|\n)[^ \n]+:[0-9]+ /\1/' | sed 1d >"$folder/text.txt"

# Small enough for minutes on two cores. The tokenizer is trained on the text, with as many ids as the model has.
cat >"$folder/model.json" <<JSON
{
  "model_type": "gpt2",
  "vocab_size": 1024,
  "n_positions": 128,
  "n_embd": 192,
  "n_layer": 4,
  "n_head": 6,
  "embd_pdrop": 0.0,
  "attn_pdrop": 0.0,
  "resid_pdrop": 0.0
}
JSON

"$lamina" train --model "$folder/model.json" --data "$folder/text.txt" --out "$run" --steps "$steps" \
  --batch 16 --seq 128 --lr 2e-3 --schedule cosine --warmup 20 --weight-decay 0.1 --clip 1 --seed 1

echo
"$lamina" generate "$run" --prompt "And God said" --echo --max-tokens 120 --temperature 0.8 --seed 1
echo
echo "The trained model is a HuggingFace folder: $run. More of it:"
echo "  $lamina generate $run --prompt \"In the beginning\" --echo"
