#!/bin/bash
# bash docs/study/real.sh BASE OUT: what four bits take from fine-tunes of a pretrained model, from thin to strong, and what
# brings it back. BASE: a .gguf file or a BF16 folder. OUT gets two tables for each fine-tune: held-out conversations, and
# docs/study/questions.jsonl.xz (120 calls and 40 refusals of BFCL, 80 prompts of MT-bench, plain and with an instruction that can be
# checked, both Apache-2.0; 118 facts), with the outcome of each reply.
# STRENGTHS, SEEDS: of the fine-tunes. RECIPES: more of them at 5e-5. JOBS: fine-tunes at a time. ONLY: one fine-tune, as RATE SEED.
set -e
export BASE=$1 OUT=$2 STRENGTHS=${STRENGTHS:-5e-5 1e-5 2e-4 3e-5 1e-4} SEEDS=${SEEDS:-1 2 3} JOBS=${JOBS:-4}
export RECIPES=${RECIPES-gptq awq_lite mse four_over_six mlp_only auto_mixed w4a16 delta}
sets=${SETS:-quantizer/data/sets/voice} questions=${QUESTIONS:-docs/study/questions.jsonl.xz} q="${MANNERS:-.venv/bin/manners} quantize"

if [ -z "$ONLY" ]; then
  mkdir -p "$OUT"
  for rate in $STRENGTHS; do for seed in $SEEDS; do echo "$rate $seed"; done; done |
    xargs -P "$JOBS" -n 2 sh -c 'ONLY="$1 $2" bash "$0" "$BASE" "$OUT" > "$OUT/$1-$2.log" 2>&1 || echo "failed: $1 $2"' "$0"
  exit
fi

read -r rate seed <<< "$ONLY"
at=$OUT/$rate-$seed train="--set train.seed=$seed --set train.compile=false --set train.save=100000 $TRAIN"
mkdir -p "$at"
# make VERB RECIPE SOURCE NAME [FLAG]...
make() {
  $q "$1" --recipe "$2" --source "$3" --out "$at/$4" --data $sets/conversations.jsonl.xz --proof sample "${@:5}"
}
# table NAME FOLDER...: tables of the fine-tune, which comes first, and of these
table() {
  local folders=() folder
  for folder in sft "${@:2}"; do [ ! -e "$at/$folder" ] || folders+=("$at/$folder"); done
  $q compare --replies --data $sets/held_out.jsonl.xz --out "$at/$1-manners.json" "${folders[@]}"
  $q compare --replies --data $questions --conversations 1000 --out "$at/$1-questions.json" "${folders[@]}"
}

make sft sft "$BASE" sft --template hermes --set train.lr=$rate $train
make ptq default "$at/sft" default
make ptq default "$at/sft" default-w4a16 --set 'activations="bf16"'
make ptq awq_gptq "$at/sft" awq_gptq
$q gguf "$at/sft" --type q4_k_m --out "$at/gguf" && mv "$at"/gguf/*.gguf "$at/q4_k_m.gguf"
make qad qad "$at/sft" qad --set train.lr=1e-4 --set train.epochs=2 $train
table main default default-w4a16 awq_gptq q4_k_m.gguf qad
[ "$rate" = 5e-5 ] && [ -n "$RECIPES" ] || exit 0
for recipe in $RECIPES; do
  make ptq "$recipe" "$at/sft" "$recipe" $([ "$recipe" = delta ] && echo --base "$BASE") || true
done
table more $RECIPES
