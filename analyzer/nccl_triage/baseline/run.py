"""Compares a bad run with a good one: the producer that ``diagnose(baseline=...)`` adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from nccl_triage.baseline import messages, pace, setup
from nccl_triage.baseline.run_difference import MAX_NAMED, RunDifference
from nccl_triage.baseline.setup import first_event
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.verdict import decide
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.event import Context, Event
from nccl_triage.observations.store import Observations
from nccl_triage.parsers.unknown_errors import SALIENT

#: One comparison per subject, in the order of the differences.
COMPARISONS: tuple[Callable[[Case, Case], Iterator[RunDifference]], ...] = (
    messages.compare, setup.compare_variables, setup.compare_versions, setup.compare_networks, setup.compare_transports, setup.compare_shape,
    pace.compare,
)  # fmt: skip
#: Kinds of lines that the bad run must show before it can be another program than the good one.
_FEW = 3
#: Differences of one subject: whoever prints more variables than that does not print them to be read.
MAX_DIFFERENCES = 400


def against(good: Observations, rules: RuleSet) -> Callable[[Observations], Observations]:
    """Return a producer of observations of the differences between a run and a good one."""
    found = decide(good, rules)

    def produce(bad: Observations) -> Observations:
        return _compare(found.case, Case(bad, rules), found.verdict, found.cause)

    return produce


def _compare(good: Case, bad: Case, verdict: str, cause: str | None) -> Observations:
    observed = Observations()
    at = first_event(bad)
    state = _state(good, bad)
    source, line = (at.source, at.line) if at is not None else (next(iter(sorted(bad.observations.sources)), ""), 1)
    paths = sorted(good.observations.sources)
    fields = {"state": state, "verdict": verdict, "logs": str(len(paths))}
    fields |= {f"good_{number}": path for number, path in enumerate(paths[:MAX_NAMED])}
    if verdict != "healthy" and state == "compared":
        fields["state"] = "failed"
        fields["cause"] = cause or "unknown"
    observed.add(
        Event("baseline.compared", source, line, f"[{', '.join(paths[:MAX_NAMED])}]", Context(), "context", fields)
    )
    if state == "compared":
        for comparison in COMPARISONS:
            for difference in islice(comparison(good, bad), MAX_DIFFERENCES):
                event = difference.event()
                observed.add(event, ("name", "good", "bad"))
    return observed


def _state(good: Case, bad: Case) -> str:
    """Return ``compared``, ``empty`` or ``other``: nothing is known of the good run, or it is another program."""
    theirs = _said(good)
    if not theirs:
        return "empty"
    ours = _said(bad)
    return "other" if len(ours) >= _FEW and not ours & theirs else "compared"


def _said(case: Case) -> set[str]:
    """Return the kinds of lines of a run that speak of no failure."""
    return {
        e.signature
        for e in case.events
        if not e.is_failure and e.signature != SALIENT and not e.signature.startswith("steps.")
    }
