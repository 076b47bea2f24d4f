"""Flight recorder dumps: which ranks came late to calls, where in the program they stand, and what the log says of them."""

from __future__ import annotations

from collections import Counter

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.diagnosis.facts.recorder import comparison, event, events
from nccl_triage.observations.recorder_table import GroupProgress
from nccl_triage.recorder.lines import group_name
from nccl_triage.recorder.pace import Slow, slow_ranks

#: A rank is late if it comes this much after the median rank, in seconds and as a share of the timeout.
_LATE, _SHARE = 30.0, 0.1
#: The kinds of findings that blame ranks.
_BLAMES = ("operation", "size", "dtype", "missing", "ahead", "lagging", "early", "unmet", "circle")
#: Facts with the ranks that brought the job down according to the log.
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
    "ranks whose dumps show that they issued the common operation much later than the others",
    blames=(
        "its flight recorder shows that it arrived long after the others",
        "其 flight recorder 显示它比其他 rank 晚很久",
    ),
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


@fact(
    "recorder.victims_stand", "the line of the user's program in which the waiting ranks are, according to their dumps"
)
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
    """Return the ranks that the log alone names, and the names of the facts that do so."""
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


@fact("recorder.pace", "what the dumps show about ranks that the others repeatedly wait for")
def _pace(case: Case) -> Fact | None:
    table = case.observations.recorder
    if not table:
        return None
    hosts = {rank: info.host for rank, info in case.identity.ranks.items() if info.host}
    found = slow_ranks(table, hosts)
    if not found:
        return None
    lines = [line for slow in found if (line := table.standings[(slow.group, slow.rank)].last) is not None]
    return Fact(found, [event(line) for line in lines[:4]])


def slow(case: Case) -> list[Slow]:
    """Return the slow ranks, by the dumps."""
    found: list[Slow] = case.value("recorder.pace", [])
    return found


@fact(
    "recorder.slow_ranks",
    "ranks that the others repeatedly wait for, according to the times in the dumps",
    blames=(
        "the flight recorders show that the others repeatedly waited for it",
        "flight recorder 显示其他 rank 反复等待它",
    ),
)
def _ranks(case: Case) -> Fact | None:
    found = case.fact("recorder.pace")
    return Fact([one.rank for one in slow(case)], found.events) if found is not None else None


@fact(
    "recorder.slow_surely",
    "the same, where calls were late themselves: measured on the GPU, or by a backend that waits for each call",
    blames=(
        "the flight recorders show that the others repeatedly waited for it",
        "flight recorder 显示其他 rank 反复等待它",
    ),
)
def _surely(case: Case) -> Fact | None:
    found = case.fact("recorder.pace")
    ranks = [one.rank for one in slow(case) if one.how == "gpu" or _blocks(case, one)]
    return Fact(ranks, found.events) if ranks and found is not None else None


def _blocks(case: Case, slow: Slow) -> bool:
    """Tell whether calls end before the next one is issued. With NCCL, ranks may issue calls far ahead of their GPU."""
    return case.observations.recorder.standings[(slow.group, slow.rank)].backend == "gloo"


@fact("recorder.slow_by", "by how much a slow rank is late, and in how many calls of which group")
def _by(case: Case) -> Fact | None:
    found = slow(case)
    if not found:
        return None
    worst = max(found, key=lambda one: one.seconds)
    name = group_name(worst.group.name, worst.group.desc)
    return Fact(f"{worst.seconds:.2g} s in {worst.times} of {worst.calls} calls of group {name}")
