#!/bin/bash
#SBATCH --job-name=attnbench
#SBATCH --array=1-16
#SBATCH --partition=h100
#SBATCH --gpus=1
#SBATCH --exclusive
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --output=shards/%a.log
#SBATCH --open-mode=append
set -eu
# As in --array. SLURM_ARRAY_TASK_COUNT is less if only lost tasks run again.
shards=16
file="shards/$SLURM_ARRAY_TASK_ID.jsonl"
if [ -e "$file" ]; then
  attnbench run --resume "$file" --force
else
  attnbench run mine.toml --out "$file" \
    --shard "$SLURM_ARRAY_TASK_ID/$shards"
fi
