"""The shell script that starts written runs, one after the other, by srun, torchrun or mpirun.

What a log says never stands in it: messages and variables lie in the runs' files, and the rest is quoted.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from nccl_triage.verify.launchers.static import Written

#: Seconds beyond the ranks' own deadlines after which srun ends a step.
MARGIN = 60
WAYS = ("srun", "torchrun", "mpirun")

_HEAD = """#!/usr/bin/env bash
# Written by nccl-triage verify: {count} runs of one collective each. {where}
# Further arguments are handed to {whom}. A run that begins after NCCL_TRIAGE_BUDGET seconds is left out.
set -u
folder={folder}
python={python}
budget=${{NCCL_TRIAGE_BUDGET:-{budget}}}
"""
_FUNCTIONS = """
begin() {  # label, text
  if [ "$SECONDS" -ge "$budget" ]; then
    echo "nccl-triage: $1 is left out: the budget of $budget s is spent" >&2
    return 1
  fi
  echo "nccl-triage: $1: $2" >&2
}
failed() {  # label, exit code
  echo "nccl-triage: $1: the launcher ended with exit code $2" >&2
}
"""
_CHOICE = """
how=${1:-}
case "$how" in
  srun|torchrun|mpirun) shift ;;
  *) echo "usage: bash run.sh srun|torchrun|mpirun [OPTION]..." >&2; exit 2 ;;
esac
"""
_SEVERAL = """
# torchrun is started on every host: with the same HEAD (the first host) and ATTEMPT (another one each time), and with
# NODE_RANK=0 on the first host alone.
if [ "$how" = torchrun ]; then
  : "${HEAD:?the name or address of the first host, the same on every host}"
  : "${NODE_RANK:?0 on the first host, another number on each other}"
  attempt=${ATTEMPT:-1}
  budget=999999  # each host would measure it for itself, and then wait for one that has stopped
fi
"""


def text(
    runs: Sequence[Written], folder: Path, python: str, kind: str, hosts: Sequence[str] = (), budget: float = 300.0
) -> str:
    """Return the script for ``kind`` slurm (srun alone) or print (its first argument chooses srun, torchrun or mpirun)."""
    slurm = kind == "slurm"
    several = any(len(written.run.places) > 1 for written in runs)
    head = _HEAD.format(
        count=len(runs),
        where="Run it inside an allocation (salloc, sbatch)." if slurm else f"Its first argument: {'|'.join(WAYS)}.",
        whom="srun" if slurm else "the launcher",
        folder=shlex.quote(str(folder)),
        python=shlex.quote(python),
        budget=int(budget),
    )
    parts = [head, _FUNCTIONS]
    if not slurm:
        parts += [_CHOICE, _SEVERAL if several else ""]
    parts += [_one(written, slurm, several, hosts) for written in runs]
    parts.append(f"\necho {shlex.quote(f'nccl-triage: judge with: {judging(folder)}')} >&2\n")
    return "".join(parts)


def judging(folder: Path) -> str:
    """Return the command that judges what the runs left in a folder."""
    return f"nccl-triage verify --collect {shlex.quote(str(folder))}"


def about(written: Written) -> str:
    """Return what a run is, for people."""
    run = written.run
    where = f"{run.world} ranks on {len(run.places)} host{'s' if len(run.places) > 1 else ''}"
    return f"{run.message.op} on {where}, {run.backend}" + (f", {run.changed}" if run.changed else "")


def _one(written: Written, slurm: bool, several: bool, hosts: Sequence[str]) -> str:
    label = written.label
    lines = [f"\nif begin {label} {shlex.quote(about(written))}; then"]
    if slurm:
        lines.append(f"  {_srun(written, hosts)} || failed {label} $?")
    else:
        lines.append('  case "$how" in')
        for way, command in zip(
            WAYS, (_srun(written, hosts), _torchrun(written, several), _mpirun(written)), strict=True
        ):
            lines.append(f"    {way}) {command} || failed {label} $? ;;")
        lines.append("  esac")
    return "\n".join([*lines, "fi\n"])


def _task(written: Written) -> str:
    return f'"$python" "$folder/worker.pyz" task "$folder/spec-{written.label}.json" "$folder/results" </dev/null'


def _srun(written: Written, hosts: Sequence[str]) -> str:
    run, minutes = written.run, -(-int(written.seconds + MARGIN) // 60)
    named = [f"--nodelist={shlex.quote(','.join(hosts[place] for place in run.places))}"] if hosts else []
    options = [
        f"--nodes={len(run.places)}",
        f"--ntasks={run.world}",
        f"--ntasks-per-node={written.per_host}",
        "--kill-on-bad-exit=0",
        f"--time={minutes // 60}:{minutes % 60:02d}:00",
        *named,
    ]
    return f'srun {" ".join(options)} "$@" {_task(written)}'


def _torchrun(written: Written, several: bool) -> str:
    run = written.run
    count = len(run.places)
    command = f'"$python" -m torch.distributed.run --nnodes={count} --nproc-per-node={written.per_host}'
    if written.per_host * count != run.world:
        return f"echo 'torchrun cannot spread {run.world} ranks evenly over {count} hosts' >&2"
    if count == 1:
        here = f'{command} --standalone "$@" --no-python {_task(written)}'
        return f'[ "$NODE_RANK" != 0 ] || {here}' if several else here
    meeting = f'--rdzv-backend=c10d --rdzv-endpoint="$HEAD" --rdzv-id="{written.label}-$attempt"'
    return f'{command} {meeting} "$@" --no-python {_task(written)}'


def _mpirun(written: Written) -> str:
    # Open MPI; --map-by is what spreads the ranks evenly over the hosts that its own options name.
    spread = f"--map-by ppr:{written.per_host}:node" if len(written.run.places) > 1 else ""
    return f'mpirun -n {written.run.world} {spread} "$@" {_task(written)}'.replace("  ", " ")
