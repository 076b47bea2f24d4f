"""The plan for the job's own hosts, whatever host it is made on: what the experiments are, before who could run them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nccl_triage.document import verify_commands
from nccl_triage.engine.schema import RuleSet
from nccl_triage.hosts.links import HostPlace
from nccl_triage.verify import api
from nccl_triage.verify.api import Settings
from nccl_triage.verify.plan import Plan
from nccl_triage.verify.question import Question
from nccl_triage.verify.record import plan_record
from nccl_triage.verify.written import files, static


def plan_for_job(question: Question, rules: RuleSet, settings: Settings, names: Sequence[str]) -> Plan:
    """Return the experiments for the suspects of a question on the job's hosts of these names, a GPU for each rank.

    Nothing is asked of this host or of any other.
    """
    return static.plan_of(question, rules, replace(settings, hosts=tuple(names)))


def record_of(document: Mapping[str, Any], rules: RuleSet, settings: Settings) -> dict[str, Any]:
    """Return what ``--dry-run`` shows: the experiments, what of them would run with these settings, and commands.

    Nothing is contacted and nothing is written; of this host only the list of GPUs is read.
    """
    question, place = (
        api.question_of(dict(document), settings.options),
        verify_commands.place_of(document, settings.paths, api.option_words(settings), settings.hosts),
    )
    job = plan_for_job(question, rules, settings, place.names)
    made, launcher = _plan_here(document, rules, settings, job), settings.launcher
    runs = any(entry.control is not None for entry in made.experiments)
    chosen = verify_commands.launcher_of(launcher, bool(settings.hosts))
    ready = verify_commands.ready_commands(place, chosen if runs else None, None if runs else chosen)
    record = plan_record(made, job, ready, _ways(made, settings))
    record["launcher"] = launcher
    record["healthy"] = document.get("verdict") == "healthy"
    record["would_write"] = None
    if launcher in ("slurm", "print"):
        folder = str(settings.workdir or verify_commands.FOLDER)
        record["would_write"] = {"folder": folder, "commands": files.preview(made, settings, launcher)}
    return record


def _plan_here(document: Mapping[str, Any], rules: RuleSet, settings: Settings, job: Plan) -> Plan:
    """Return the plan of the launcher that the settings name."""
    if settings.launcher == "local":
        return api.plan_of(dict(document), rules, settings)
    if settings.launcher == "ray":  # its hosts are known once it is connected: those of the job, as it should be
        return job
    return static.plan_of(job.question, rules, api.in_words_of_log(settings, job.question))


def _ways(made: Plan, settings: Settings) -> list[str]:
    """Return how each host of a plan is reached; empty for this host."""
    if settings.launcher != "local":
        way = "torchrun" if settings.launcher == "print" else settings.launcher
        return [way] * len(made.means.places)
    return [_way(place) for place in made.means.places]


def _way(place: HostPlace) -> str:
    if not place.command:
        return ""
    return "ssh" if place.command[0] == "ssh" and "BatchMode=yes" in place.command else shlex.join(place.command)
