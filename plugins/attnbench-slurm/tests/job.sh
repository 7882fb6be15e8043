#!/bin/bash

# Parameters
#SBATCH --error=FOLDER/.attnbench-slurm-ID/submitit/%j_0_log.err
#SBATCH --gres=gpu:h100:1
#SBATCH --job-name=attnbench
#SBATCH --no-requeue
#SBATCH --nodes=1
#SBATCH --open-mode=append
#SBATCH --output=FOLDER/.attnbench-slurm-ID/submitit/%j_0_log.out
#SBATCH --partition=h100
#SBATCH --signal=USR2@90
#SBATCH --time=02:00:00
#SBATCH --wckey=submitit

# command
export SUBMITIT_EXECUTOR=slurm
PYTHON -u -m submitit.core._submit FOLDER/.attnbench-slurm-ID/submitit
