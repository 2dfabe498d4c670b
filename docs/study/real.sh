#!/bin/sh -e
# sh docs/study/real.sh BASE OUT [SEED]: what NVFP4 takes from fine-tunes of a pretrained model, from thin to strong, and what
# brings it back. BASE: a BF16 folder whose template renders tools. OUT gets the fine-tunes, and a table for each strength.
base=$1 out=$2 seed=${3:-1}
sets=quantizer/data/sets/voice q="${MANNERS:-.venv/bin/manners} quantize"
mkdir -p "$out"

# make VERB RECIPE SOURCE NAME [FLAG]...
make() {
  verb=$1 recipe=$2 source=$3 name=$4; shift 4
  $q "$verb" --recipe "$recipe" --source "$source" --data $sets/conversations.jsonl.xz --out "$out/$name" --proof sample "$@"
}

for lr in 5e-5 1e-5 3e-5 1e-4 2e-4; do
  tuned=sft-$lr made="default-$lr qad-$lr"
  make sft sft "$base" $tuned --set train.lr=$lr --set train.seed="$seed" --set train.compile=false
  make ptq default "$out/$tuned" default-$lr
  make qad qad "$out/$tuned" qad-$lr --set train.lr=1e-4 --set train.epochs=2 --set train.seed="$seed" --set train.compile=false
  if [ $lr = 5e-5 ]; then
    for recipe in gptq awq_gptq awq_lite mse four_over_six mlp_only auto_mixed; do
      make ptq $recipe "$out/$tuned" $recipe-$lr
      made="$made $recipe-$lr"
    done
    make ptq delta "$out/$tuned" delta-$lr --base "$base"
    made="$made delta-$lr"
  fi
  for numerics in "" --weight-only; do
    echo $tuned $made | tr ' ' '\n' | sed "s#^#$out/#" | xargs $q compare --data $sets/held_out.jsonl.xz --replies --out "$out/manners-$lr$numerics.json" $numerics
    echo $tuned $made | tr ' ' '\n' | sed "s#^#$out/#" | xargs $q compare --data docs/study/facts.jsonl --out "$out/facts-$lr$numerics.json" $numerics
  done
done
