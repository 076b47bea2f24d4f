"""Whether NCCL works at all before anything is judged: alone on one GPU of each host, then a trivial all-reduce.

NCCL that does not work on a GPU that nobody accuses is a matter of this installation (torch, driver, container), and
everything that failed after it would say as little of the job. A trivial all-reduce that fails on the ranks of the control
is no such thing: it shows that neither the operation nor the size of the log matters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from nccl_triage.engine.schema import Text
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, Slot
from nccl_triage.verify.judge import Trial
from nccl_triage.verify.placement import Request, accused_on, gpu_env, is_slot
from nccl_triage.verify.plan import Planned
from nccl_triage.verify.treatments import ALONE, TRIVIAL
from nccl_triage.verify.trials import Session

#: Elements of the trivial all-reduce, and the GPUs of a host on which NCCL may fail alone before it counts as broken.
_FEW, _TRIES = 1024, 2
#: Characters of an error's beginning, and of its end, that are shown.
_SHOWN = 160


@dataclass(frozen=True, slots=True)
class Gate:
    """The runs before a control, and why nothing may be judged (None where all is well)."""

    trials: tuple[Trial, ...] = ()
    why_not: Text | None = None

    @property
    def trivial_fails(self) -> bool:
        """Whether the trivial all-reduce failed on ranks on which NCCL itself works."""
        return any(trial.fails for trial in self.trials if trial.result.run.changed == TRIVIAL["en"])


def passed(session: Session, planned: Planned, control: CollectiveRun) -> Gate:
    """Run NCCL alone on one GPU of each host, then a trivial all-reduce on the control's ranks; no run for Gloo.

    The runs are remembered: several suspects pay for them once.
    """
    if control.backend != "nccl":
        return Gate()
    trials: list[Trial] = []
    for place in control.places:
        tried = _alone(session, planned, control, place)
        trials += tried
        if tried and not any(trial.result.passed for trial in tried):
            return Gate(tuple(trials), _why_not(tried[0], session.names[place]))
    if control.world > 1 and control.joins == "group":
        trial = session.trial(_trivial(control, control.slots, TRIVIAL["en"]), 0, planned)
        trials += [trial] if trial is not None else []
    return Gate(tuple(trials))


def _trivial(control: CollectiveRun, slots: tuple[Slot, ...], changed: str) -> CollectiveRun:
    """Return a small all-reduce on some ranks of the control, with its variables."""
    return CollectiveRun(
        label="gate",
        slots=slots,
        message=CollectiveMessage("ALLREDUCE", _FEW, "float32"),
        backend=control.backend,
        device=control.device,
        env=control.env,
        per_rank_env=control.per_rank_env,
        iterations=1,
        changed=changed,
    )


def _alone(session: Session, planned: Planned, control: CollectiveRun, place: int) -> list[Trial]:
    """Run NCCL alone on a GPU of a host that nobody accuses, and on another one if that fails."""
    plan = session.plan
    accused = accused_on(place, Request(plan.question, planned.suspect, planned.experiment), plan.means)
    slots = [slot for slot in control.slots if slot.place == place]
    trials: list[Trial] = []
    for slot in [slot for slot in slots if not any(is_slot(gpu, slot) for gpu in accused)][:_TRIES]:
        run = _trivial(control, (slot,), ALONE["en"])
        trial = session.trial(replace(run, env={}, per_rank_env=gpu_env((slot,), plan.means)), 0, planned)
        if trial is None:
            break
        trials.append(trial)
        if trial.result.passed or trial.result.own_failure is not None:
            break
    return trials


def _why_not(trial: Trial, name: str) -> Text:
    """Return why NCCL on one GPU failed, as far as its rank said it."""
    own = trial.result.own_failure
    if own is not None:
        return {"en": f"{name}: {own['en']}", "zh": f"{name}：{own['zh']}"}
    result = trial.result
    errors = [trace.error for trace in result.ranks.values() if trace.error is not None]
    told = _cut(" ".join(str(errors[0].get("text", "")).split())) if errors else f"{result.outcome}, {result.stage}"
    return {
        "en": f"NCCL does not work on a single GPU of {name}, whatever the job did: {told}",
        "zh": f"在 {name} 的单块 GPU 上 NCCL 就无法工作，与作业无关：{told}",
    }


def _cut(text: str) -> str:
    """Return a text with its middle left out: NCCL says last what was wrong."""
    return text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]} ... {text[-_SHOWN:]}"
