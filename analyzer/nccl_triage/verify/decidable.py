"""Whether an experiment can decide anything where it would run; one that cannot is not started.

A verdict needs the job's own hosts: elsewhere an experiment tells only of the machine at hand. And an experiment whose
passing says nothing must be able to fail as the cause predicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nccl_triage.engine.schema import Text
from nccl_triage.verify.means import Means
from nccl_triage.verify.plan import Plan, Planned
from nccl_triage.verify.question import Question

#: Hosts that a reason names.
_NAMED = 4


def can_decide(planned: Planned, question: Question, means: Means) -> Text | None:
    """Return why the control of an experiment can decide nothing on these hosts, None if it can.

    An experiment without a control says itself why there is none.
    """
    if planned.control is None:
        return planned.why_not
    used = planned.control.places
    return _foreign(question, means, used) or _silent(planned, question, [means.places[place].name for place in used])


def only_deciding(plan: Plan) -> Plan:
    """Return the plan without the controls that can decide nothing on its hosts; each says why it does not run."""
    kept = []
    for planned in plan.experiments:
        reason = can_decide(planned, plan.question, plan.means) if planned.control is not None else None
        if reason is not None:
            planned = replace(planned, control=None, why_not=reason, differs=(), complete=False)
        kept.append(planned)
    return replace(plan, experiments=tuple(kept))


def _names(names: Sequence[str]) -> str:
    more = f", .. ({len(names)})" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _foreign(question: Question, means: Means, used: Sequence[int]) -> Text | None:
    """The job ran elsewhere, or nobody knows where."""
    if not question.hosts:
        here = _names([means.places[place].name for place in used])
        return {
            "en": f"the log names no hosts, so a run on {here} may be on other hardware; if it is the job's, add --job-hosts",
            "zh": f"日志未给出主机名，在 {here} 上运行可能用的是其他硬件；如确为该作业的主机，请加 --job-hosts",
        }
    strange = [means.places[place].name for place in used if means.name_in_log(place, question) is None]
    if not strange:
        return None
    here, job = _names(strange), _names(question.hosts)
    return {
        "en": f"a run on {here} cannot decide it: the job ran on {job}",
        "zh": f"在 {here} 上运行不能得出结论：作业运行在 {job}",
    }


def _silent(planned: Planned, question: Question, used: Sequence[str]) -> Text | None:
    """A pass would say nothing, and what failed cannot fail here."""
    run, experiment = planned.control, planned.experiment
    assert run is not None
    supports = planned.complete or (question.timeout is not None and _changes_timeout(planned))
    if (
        experiment.check is not None
        or experiment.scope == "hosts"  # Gloo crosses the same network
        or experiment.passing == "refutes"
        or (experiment.passing == "supports" and supports)
    ):
        return None
    here = _names(used)
    if experiment.kind == "reach" and len(used) < 2:
        return {
            "en": f"a run on {here} alone cannot decide it: it is about the paths between hosts",
            "zh": f"只在 {here} 上运行不能得出结论：要验证的是主机之间的路径",
        }
    if experiment.kind in ("replay", "pairs") and run.backend == "gloo" and question.backend != "gloo":
        return {
            "en": f"a run with Gloo on {here} cannot decide it: a pass says nothing, and NCCL and the GPUs are not used",
            "zh": f"在 {here} 上用 Gloo 运行不能得出结论：通过说明不了问题，且不涉及 NCCL 和 GPU",
        }
    return None


def _changes_timeout(planned: Planned) -> bool:
    """Tell whether the cause blames the timeout: there a pass that is brief supports it at any size."""
    return any(item.variable == "timeout" for item in planned.experiment.vary)
