"""Experiments by files: write what srun, torchrun or mpirun shall start, and judge what the ranks left behind.

Both sides meet in one folder that every host sees: worker.pyz, run.sh, plan.json, report.json, one spec-LABEL.json a run,
and below results/ what each rank told.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import OutputError, UsageError
from nccl_triage.lazy_regex import lazily
from nccl_triage.verify import bundle, feedback, session
from nccl_triage.verify.judge import Report
from nccl_triage.verify.launchers import collected, script, static
from nccl_triage.verify.launchers.static import Design, Layout
from nccl_triage.verify.planning import Settings, question_of
from nccl_triage.verify.question import Question
from nccl_triage.verify.treatments import words

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
    question = question_of(document)
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
            text = script.text(layout.runs, folder, python, kind, names, settings.wishes.budget)
            _put(folder / "run.sh", text, 0o700)
        except OSError as error:
            raise OutputError(
                "cannot write into {folder}", cause="{why}", folder=folder, why=error.strerror or error
            ) from None
    return _told(layout, folder, kind, question, names)


def judge(document: dict[str, Any], rules: RuleSet, folder: Path) -> tuple[dict[str, Any], Report]:
    """Judge what the runs in a folder left behind: the document with the outcomes, and the report.

    Raises UsageError for a folder that holds no plan or no result.
    """
    report = collected.report_of(question_of(document), rules, folder)
    return feedback.apply(document, report), report


def _fill(folder: Path, document: Mapping[str, Any], layout: Layout) -> None:
    bundle.write(folder / "worker.pyz")
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
        "wishes": asdict(layout.plan.wishes),
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


def _put(path: Path, text: str, mode: int = 0o600) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _told(layout: Layout, folder: Path, kind: str, question: Question, names: list[str]) -> str:
    """Return what was written, what to start, and what to do afterwards."""
    seconds = [written.seconds for written in layout.runs]
    most = min(sum(seconds), layout.plan.wishes.budget + max(seconds))
    lines = [f"{len(layout.runs)} runs are written to {folder}; together they take {most / 60:.0f} min at most."]
    for design in layout.designs:
        lines += _about(design)
    wanted = [host for host in question.hosts if _HOST.fullmatch(host)]
    if wanted and not names:
        more = f" and {len(wanted) - _SHOWN} more" if len(wanted) > _SHOWN else ""
        lines.append(f"Take the hosts of the log: {', '.join(wanted[:_SHOWN])}{more}; runs on others refute nothing.")
    lines += ["", *_commands(layout, folder, kind), "Then judge them:", f"  {script.judging(folder)}"]
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
    yield "Start them in one of these ways; more options for the launcher may follow:"
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
        yield f"    Other than the failure: {'; '.join(item['en'] for item in planned.differs)}."
    if design.left_out:
        yield f"    Not covered, for it needs --host or --launcher ray: {'; '.join(item['en'] for item in design.left_out)}."
