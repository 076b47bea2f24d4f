#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=24:00:00
#SBATCH --output=%x-%j.out
# Two minutes before the time limit the script gets SIGTERM: the end of a job that hangs.
#SBATCH --signal=B:TERM@120

logs=$PWD/logs/$SLURM_JOB_ID
mkdir -p "$logs"

triage() {
    code=$?
    trap - EXIT
    if ((code != 0)); then
        nccl-triage "$logs" --verify never --report "$logs/post-mortem.html" --force
    fi
    exit "$code"
}
trap triage EXIT
trap 'kill "$step"; wait "$step"; exit 143' TERM

# In the background, because bash runs no trap while a command in the foreground runs.
srun --kill-on-bad-exit=1 --output="$logs/rank-%t.log" "$@" &
step=$!
wait "$step"
