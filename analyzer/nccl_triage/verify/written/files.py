"""Experiments by files: writes what srun, torchrun or mpirun starts, and judges what the ranks left behind.

Both sides meet in one folder that every host sees: worker.pyz, run.sh, plan.json, report.json, one spec-LABEL.json per
run, and below results/ the output of each rank. The shell script never contains text of a log: messages and variables are
in the files of the runs, and the rest is quoted.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import OutputError, UsageError
from nccl_triage.lazy_regex import lazily
from nccl_triage.verify import feedback, session
from nccl_triage.verify.api import Settings, in_words_of_log, question_of, with_commands
from nccl_triage.verify.cluster import worker
from nccl_triage.verify.judge import Report
from nccl_triage.verify.plan import Plan
from nccl_triage.verify.question import Question
from nccl_triage.verify.treatments import words
from nccl_triage.verify.written import results, static
from nccl_triage.verify.written.static import Design, Layout, Written

#: Seconds beyond the ranks' own deadlines after which srun ends a step.
MARGIN = 60
WAYS = ("srun", "torchrun", "mpirun")

_HEAD = """#!/usr/bin/env bash
# Written by nccl-triage verify: {count} runs of one collective each. {where}
# Further arguments are passed to {whom}. Runs due to start after NCCL_TRIAGE_BUDGET seconds are skipped.
set -u
folder={folder}
python={python}
budget=${{NCCL_TRIAGE_BUDGET:-{budget}}}
"""
#: A folder beside a log may be named torch: modules are looked for in other folders than the current one.
_SAFE_PATH = """
export PYTHONSAFEPATH=1
if [ -n "${PYTHONPATH:-}" ]; then
  IFS=: read -r -a entries <<<"$PYTHONPATH"
  PYTHONPATH=
  for entry in "${entries[@]}"; do
    case "$entry" in
      /*) [ "$entry" -ef . ] || PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$entry ;;
    esac
  done
fi
"""
#: What python -m does, except that it never looks into the current folder: Python 3.10 has no PYTHONSAFEPATH.
_TORCHRUN = """
torchrun='import sys; sys.path[:] = [entry for entry in sys.path if entry.startswith("/")]
import runpy; runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)'
"""
_FUNCTIONS = """
begin() {  # label, text
  if [ "$SECONDS" -ge "$budget" ]; then
    echo "nccl-triage: $1 is skipped: the budget of $budget s is used up" >&2
    return 1
  fi
  echo "nccl-triage: $1: $2" >&2
}
failed() {  # label, exit code
  echo "nccl-triage: $1: the launcher exited with code $2" >&2
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
# torchrun is started on every host: with the same HEAD (the first host) and ATTEMPT (a new one each time), and with
# NODE_RANK=0 on the first host alone.
if [ "$how" = torchrun ]; then
  : "${HEAD:?the name or address of the first host, the same on every host}"
  : "${NODE_RANK:?0 on the first host, another number on each other}"
  attempt=${ATTEMPT:-1}
  budget=999999  # each host would measure it for itself, and then wait for one that has stopped
fi
"""


def script_text(
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
    parts = [head, _SAFE_PATH, _FUNCTIONS]
    if not slurm:
        parts += [_TORCHRUN, _CHOICE, _SEVERAL if several else ""]
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
    command = f'"$python" -c "$torchrun" --nnodes={count} --nproc-per-node={written.per_host}'
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


#: Version of plan.json.
FORMAT = 1
_HOST = lazily(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
_SHOWN = 8


def write(
    document: dict[str, Any], rules: RuleSet, settings: Settings, kind: str, *, faults: dict[str, Any] | None = None
) -> str:
    """Write the runs for a document into ``settings.workdir`` and return what to tell the user.

    ``kind`` is slurm or print. Raises UsageError without a folder or with nothing to run, OutputError when the folder
    cannot be written. ``faults`` make ranks misbehave on purpose: the verifier's own proof.
    """
    if settings.workdir is None:
        raise UsageError(
            "--launcher {kind} needs --workdir", remedy="add --workdir FOLDER that every host sees", kind=kind
        )
    question = question_of(document, settings.options)
    settings = in_words_of_log(settings, question)
    layout = static.lay_out(static.plan_of(question, rules, settings), faults)
    if not layout.runs:
        reasons = [entry.why_not for entry in layout.plan.experiments if entry.why_not is not None]
        raise UsageError(
            "there is nothing to run: no experiment can show what is suspected",
            cause="{why}" if reasons else "the report names no cause",
            why={lang: _plain(text) for lang, text in reasons[0].items()} if reasons else "",
            remedy="--suspects N puts more causes to the test",
        )
    names = [place.name for place in layout.plan.means.places] if settings.hosts else []
    with session.workspace(settings.workdir, force=settings.force) as folder:
        try:
            _fill(folder, document, layout)
            python = settings.python or sys.executable
            text = script_text(layout.runs, folder, python, kind, names, settings.options.budget)
            _put(folder / "run.sh", text, 0o700)
        except OSError as error:
            raise OutputError(
                "cannot write into {folder}", cause="{why}", folder=folder, why=error.strerror or error
            ) from None
    return _told(layout, folder, kind, question, names)


def preview(made: Plan, settings: Settings, kind: str) -> list[str]:
    """Return the commands of the ranks that ``write`` would put into run.sh for a plan; nothing is written."""
    names = [place.name for place in made.means.places] if settings.hosts else []
    lines = []
    for written in static.lay_out(made).runs:
        several = len(written.run.places) > 1
        command = _srun(written, names) if kind == "slurm" else _torchrun(written, several)
        lines += [f"# {written.label}: {about(written)}", command]
    return lines


def judge(document: dict[str, Any], rules: RuleSet, folder: Path) -> tuple[dict[str, Any], Report]:
    """Judge what the runs in a folder left behind: the document with the outcomes, and the report.

    Raises UsageError for a folder that holds no plan or no result.
    """
    report = results.report_of(question_of(document, static.read_saved(folder).options), rules, folder)
    return with_commands(feedback.apply(document, report, rules), Settings(launcher="slurm")), report


def _fill(folder: Path, document: Mapping[str, Any], layout: Layout) -> None:
    _put(folder / "worker.pyz", worker().archive)
    told = json.dumps(document, default=str)
    name = hashlib.sha256((told + repr(layout.runs)).encode()).hexdigest()[:16]
    _put(folder / "report.json", told)
    for written in layout.runs:
        _put(folder / f"spec-{written.label}.json", json.dumps(static.spec_of(written, name)))
    means = layout.plan.means
    plan = {
        "format": FORMAT,
        "plan": name,
        "places": [{"name": place.name, "slots": place.slots} for place in means.places],
        "gpus": means.gpus,
        "wishes": static.saved_options(layout.plan.options),
        "runs": [written.label for written in layout.runs],
        "experiments": [_design(design) for design in layout.designs],
    }
    _put(folder / "plan.json", json.dumps(plan, indent=1))


def _design(design: Design) -> dict[str, Any]:
    return {
        "cause": design.planned.suspect.cause,
        "control": design.control,
        "treatments": [{**asdict(treatment), "runs": labels} for treatment, labels in design.treatments],
        "not_covered": [item["en"] for item in design.left_out],
    }


def _put(path: Path, data: str | bytes, mode: int = 0o600) -> None:
    # Private: what lies here is run by the job's user on every host.
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    path.chmod(mode)


def _told(layout: Layout, folder: Path, kind: str, question: Question, names: list[str]) -> str:
    """Return what was written, what to start, and what to do afterwards."""
    most = layout.seconds / 60
    lines = [f"{len(layout.runs)} runs are written to {folder}; together they take {most:.0f} min at most."]
    for design in layout.designs:
        lines += _about(design)
    wanted = [host for host in question.hosts if _HOST.fullmatch(host)]
    if wanted and not names:
        more = f" and {len(wanted) - _SHOWN} more" if len(wanted) > _SHOWN else ""
        lines.append(
            f"Take the hosts of the log: {', '.join(wanted[:_SHOWN])}{more}; runs on other hosts refute nothing."
        )
    lines += ["", *_commands(layout, folder, kind), "Then judge them:", f"  {judging(folder)}"]
    return "".join(f"{_plain(line)}\n" for line in lines)


def _plain(line: str) -> str:
    """Return a line for a terminal: names of hosts come from a log."""
    return "".join(character if character.isprintable() else "?" for character in line)


def _commands(layout: Layout, folder: Path, kind: str) -> Iterable[str]:
    run = f"bash {shlex.quote(str(folder / 'run.sh'))}"
    most = max(written.per_host for written in layout.runs)
    if kind == "slurm":
        yield "Start them inside an allocation; options for srun may follow, such as --overlap:"
        yield f"  {run}" + (f" --gpus-per-node={most}" if layout.plan.means.gpus else "")
        return
    yield "Start them in one of these ways; further launcher options may follow:"
    if any(len(written.run.places) > 1 for written in layout.runs):
        yield f"  HEAD=FIRST_HOST NODE_RANK=K {run} torchrun      (on every host at once, K from 0)"
        yield f"  {run} mpirun --hostfile HOSTS"
    else:
        yield f"  {run} torchrun"
        yield f"  {run} mpirun"
    yield f"  {run} srun"


def _about(design: Design) -> Iterable[str]:
    planned = design.planned
    if planned.control is None:
        yield f"  {planned.suspect.cause}: no run. {(planned.why_not or {'en': ''})['en']}"
        return
    treatments = [words(treatment)["en"] for treatment, _ in design.treatments]
    runs = "; ".join(["the control twice", *(f"{item} twice" for item in treatments)])
    yield f"  {planned.suspect.cause}: {planned.control.message.op} on {planned.control.world} ranks: {runs}."
    if planned.differs:
        yield f"    Differs from the failure: {'; '.join(item['en'] for item in planned.differs)}."
    if design.left_out:
        yield f"    Not covered, because it needs --host or --launcher ray: {'; '.join(item['en'] for item in design.left_out)}."
