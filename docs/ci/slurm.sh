#!/usr/bin/env bash
# A campaign on Slurm: sbatch docs/ci/slurm.sh. One Ray node per Slurm node; the first is the head and runs the driver.
#SBATCH --job-name=ropecheck
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --time=08:00:00
set -euo pipefail
bin=${ROPECHECK_BIN:-$PWD/.venv/bin}
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=${RAY_PORT:-6379}

srun --nodes=1 --ntasks=1 -w "$head" "$bin/ray" start --head --port="$port" --num-cpus="$SLURM_CPUS_PER_TASK" --block &
sleep 15
srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$head" \
    "$bin/ray" start --address="$head:$port" --num-cpus="$SLURM_CPUS_PER_TASK" --block &

# The same --out after a job that ran out of time goes on where it was.
srun --overlap --nodes=1 --ntasks=1 -w "$head" \
    "$bin/ropecheck" campaign --ray "$head:$port" --hours 7.5 --out "${OUT:-campaign}"
