#!/bin/bash
# bash docs/study/real.sh BASE OUT: what four bits take from fine-tunes of a pretrained model, from thin to strong, and what
# brings it back. BASE: a .gguf file or a BF16 folder. Five rates and three seeds in BF16, W4A16, W4A4 and Q4_K_M; at 5e-5
# eight recipes and, where their packages are installed, other quantizers (rivals.py), on held-out conversations and docs/study/questions.jsonl.xz (120 calls and 40 refusals of BFCL, 80 prompts
# of MT-bench, plain and with an instruction that can be checked, both Apache-2.0; 118 facts). OUT/rows.jsonl gets a row for each
# model (real.py has its fields); `python -m tests.study OUT/rows.jsonl` prints the tables. WORKERS: processes on the GPU.
set -e
export PYTHONPATH=$PWD OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
mkdir -p "$2"
for worker in $(seq "${WORKERS:-9}"); do
  "${PYTHON:-.venv/bin/python}" docs/study/real.py "$1" "$2" "$worker" > "$2/$worker.log" 2>&1 || echo "failed: $2/$worker.log" &
done
wait
cat "$2"/rows-*.jsonl > "$2/rows.jsonl"
