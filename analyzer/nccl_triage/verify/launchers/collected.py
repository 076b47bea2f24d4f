"""What ranks left in a folder, read back and judged like the runs of a session.

The files come from other hosts and may be cut, missing or from an earlier start: what cannot be read says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from nccl_triage.engine.schema import RuleSet, Text
from nccl_triage.errors import UsageError
from nccl_triage.verify import plan
from nccl_triage.verify.judge import (
    Fact,
    Outcome,
    Report,
    Trial,
    fact_of_findings,
    fact_of_versions,
    outcome_without,
    settle,
    treated,
    trial_of,
)
from nccl_triage.verify.launchers.placement import Hosts, as_it_ran, gpus_of, hosts_of, placed
from nccl_triage.verify.launchers.results import RankFile, read_run, result_of
from nccl_triage.verify.launchers.saved import Saved, read_saved
from nccl_triage.verify.model import Place, Run
from nccl_triage.verify.plan import Planned
from nccl_triage.verify.question import Question


def report_of(question: Question, rules: RuleSet, folder: Path) -> Report:
    """Judge the results in a folder; raises UsageError when there is no plan or no result of it."""
    saved = read_saved(folder)
    files = {label: read_run(folder / "results" / label, run, saved.plan_id) for label, run in saved.runs.items()}
    if not any(files.values()):
        raise UsageError(
            "{folder} holds no result of its plan",
            cause="no rank has written below {results}",
            remedy="start {script} first, and look at what its launcher says",
            folder=folder,
            results=folder / "results",
            script=folder / "run.sh",
        )
    hosts = hosts_of(files)
    made = plan.build(question, rules.causes, saved.means, saved.wishes)
    report = Report(made)
    trials: dict[str, Trial] = {}
    for label, run in saved.runs.items():
        if not files[label]:
            continue
        where = placed(run, files[label], hosts, saved.means)
        result = result_of(where, files[label], folder / "results" / label)
        trials[label] = trial_of(result, hosts.names, hosts.findings(where), rules)
        report.problems += _missing(where, files[label])
    report.trials = list(trials.values())
    report.seconds = sum(trial.result.seconds for trial in report.trials)
    report.outcomes = [_outcome(planned, saved, trials, hosts, question) for planned in made.experiments]
    report.hosts = hosts.facts
    report.plan = replace(made, means=replace(made.means, places=tuple(Place(name) for name in hosts.names)))
    return report


def _missing(run: Run, files: Mapping[int, RankFile]) -> list[Text]:
    ranks = [str(rank) for rank in range(run.world) if rank not in files]
    if not ranks:
        return []
    shown = ", ".join(ranks[:8]) + (f" (+{len(ranks) - 8})" if len(ranks) > 8 else "")
    return [{"en": f"{run.label}: no result of rank {shown}", "zh": f"{run.label}：没有 rank {shown} 的结果"}]


def _outcome(planned: Planned, saved: Saved, trials: Mapping[str, Trial], hosts: Hosts, question: Question) -> Outcome:
    labels, treatments = saved.designs.get(planned.suspect.cause, ([], []))
    controls = [trials[label] for label in labels if label in trials]
    if planned.control is None or not controls:
        outcome = outcome_without(planned)
        if planned.control is not None:
            outcome.why_not = {"en": "Its runs left no result.", "zh": "其实验没有留下结果。"}
        return outcome
    planned = as_it_ran(planned, controls[0], hosts, question, saved.means)
    outcome = outcome_without(planned, controls)
    for treatment, own in treatments:
        made = [trials[label] for label in own if label in trials]
        if made:
            outcome.treatments.append((treatment, [treated(trial, treatment) for trial in made]))
    settle(outcome, _fact(planned, controls[0], trials, hosts), question.timeout)
    return outcome


def _fact(planned: Planned, control: Trial, trials: Mapping[str, Trial], hosts: Hosts) -> Fact:
    if planned.experiment.check == "nccl-versions":
        return fact_of_versions(trials.values(), control.result.run)
    if planned.experiment.check == "gpus":
        gpus = gpus_of(control)
        return ("shows" if len(set(gpus)) < len(gpus) else "clean") if gpus else "none"
    return fact_of_findings(planned, hosts.findings(control.result.run), probed=False)
