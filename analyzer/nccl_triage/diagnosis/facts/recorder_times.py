"""Flight recorder dumps: when ranks came to a call, where in the program they stand, and what the log says of it."""

from __future__ import annotations

from collections import Counter

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.diagnosis.flight_recorder import comparison, event, events
from nccl_triage.observations.recorder_table import GroupProgress

#: A rank is late when it came this much after the middle one: seconds, and share of the time-out.
_LATE, _SHARE = 30.0, 0.1
#: Kinds of findings that blame ranks.
_BLAMES = ("operation", "size", "dtype", "missing", "ahead", "lagging", "early", "unmet", "circle")
#: Facts by which a log names the ranks that brought the job down.
_LOG = (
    "mismatch.culprit_ranks", "collective.behind_ranks", "collective.absent_ranks", "process.killed_ranks",
    "process.crashed_ranks", "exception.ranks", "progress.finished_early_ranks", "process.clean_exit_ranks",
    "collective.late_ranks", "progress.stalled_ranks", "collective.odd_ranks",
)  # fmt: skip


def blamed(case: Case) -> list[int]:
    """Return the ranks that the dumps blame."""
    return sorted({rank for finding in comparison(case).of(*_BLAMES) for rank in finding.ranks})


@fact(
    "recorder.late_ranks",
    "ranks that issued the operation in which all wait much later than the others, by their dumps",
    blames=("by its flight recorder it came long after the others", "其 flight recorder 显示它比其他 rank 晚很久"),
)
def _late(case: Case) -> Fact | None:
    found = []
    for finding in comparison(case).of("entered"):
        came = {
            line.rank: line
            for line in comparison(case).waiting.values()
            if line.rank in finding.others and line.created
        }
        moments = sorted(line.created for line in came.values())
        if len(moments) < 3:
            continue
        middle = moments[len(moments) // 2]
        limit = 1e9 * max(_LATE, _SHARE * _time_out(case) / 1000)
        late = [line for line in came.values() if line.created - middle > limit]
        if late and 2 * len(late) <= len(came):
            found += late
    return Fact(sorted(line.rank for line in found), [event(line) for line in sorted(found)[:4]]) if found else None


def _time_out(case: Case) -> int:
    standings = case.observations.recorder.standings.values()
    return max((standing.timeout_ms or 0 for standing in standings if standing.open is not None), default=0)


def _stands(standing: GroupProgress) -> str:
    return standing.frames[0] if standing.frames else ""


def _places(case: Case, ranks: set[int]) -> Counter[str]:
    return Counter(
        place
        for (_, rank), standing in case.observations.recorder.standings.items()
        if rank in ranks and standing.open is not None and (place := _stands(standing))
    )


@fact("recorder.victims_stand", "the line of the user's program in which the waiting ranks stand, by their dumps")
def _victims(case: Case) -> Fact | None:
    found = comparison(case)
    waiting = set(found.waiting) - set(blamed(case))
    places = _places(case, waiting)
    if not places:
        return None
    return Fact(places.most_common(1)[0][0], [event(found.waiting[rank]) for rank in sorted(waiting)[:1]])


@fact(
    "recorder.culprits_stand", "the line of the user's program from which the blamed ranks issued their last operation"
)
def _culprits(case: Case) -> Fact | None:
    ranks = set(blamed(case))
    last = [
        standing
        for (_, rank), standing in sorted(case.observations.recorder.standings.items())
        if rank in ranks and standing.last is not None and standing.frames
    ]
    latest = max(last, key=lambda standing: standing.last.created if standing.last else 0, default=None)
    if latest is None or latest.last is None:
        return None
    return Fact(_stands(latest), [event(latest.last)])


def _named(case: Case) -> tuple[set[int], list[str]]:
    """Return the ranks that the log names by itself, and the facts that do."""
    ranks: set[int] = set()
    facts = []
    for name in _LOG:
        value = case.value(name)
        if isinstance(value, list) and value and all(isinstance(rank, int) and rank >= 0 for rank in value):
            ranks |= set(value)
            facts.append(name)
    return ranks, facts


@fact("recorder.agrees_with_log", "ranks that both the log and the flight recorder dumps blame")
def _agrees(case: Case) -> Fact | None:
    named, facts = _named(case)
    both = sorted(named & set(blamed(case)))
    if not both:
        return None
    of_log = [one for name in facts if (found := case.fact(name)) is not None for one in found.events[:1]]
    return Fact(both, [*of_log[:2], *events(comparison(case).of(*_BLAMES))[:2]])


@fact("recorder.disagrees_with_log", "ranks that the flight recorder dumps blame while the log names only others")
def _disagrees(case: Case) -> Fact | None:
    named, _ = _named(case)
    ranks = blamed(case)
    if not ranks or not named or named & set(ranks):
        return None
    return Fact(ranks, events(comparison(case).of(*_BLAMES))[:2])
