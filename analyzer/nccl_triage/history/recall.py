"""What earlier failures say of the hosts and GPUs of this job, as observations beside those of its logs.

They are events of role context from a source named ``<history>``; their line is the number of the latest incident, as
``nccl-triage history show`` takes it. The rules of causes weigh them, weakly, where the logs show that cause, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nccl_triage.history.model import Incident
from nccl_triage.history.recurrence import DAY, DAYS, Recurrence, recurrences
from nccl_triage.history.signatures import GPU, HOST, SOURCE
from nccl_triage.observations.event import Context, Event
from nccl_triage.observations.store import Observations
from nccl_triage.parsers import times

#: Clocks of logs are read as if they were UTC: so many seconds may they be ahead of ours.
_AHEAD = 86400.0


def failed(observations: Observations) -> bool:
    """Tell whether any line speaks of a failure: without one nobody asks who failed before."""
    return any(event.is_failure for event in _each(observations))


def moment(observations: Observations, now: float) -> float:
    """Return when the logs end by their own clock; where they do not say it is now, on whatever clock others have."""
    known = [
        time
        for event in observations.kept()
        if (time := event.context.time) is not None and times.has_year(time) and time <= now + _AHEAD
    ]
    return max(known, default=now + _AHEAD)


def recall(observations: Observations, earlier: Iterable[Incident]) -> Observations:
    """Return what earlier incidents, those of the last ``DAYS`` days, say of the hosts and GPUs in the observations."""
    kept = list(earlier)
    found = Observations()
    present = hosts(observations)
    gpus = set(_failing_gpus(observations))
    for cause in sorted({str(incident.cause) for incident in kept if incident.blames}):
        for one in recurrences(kept, "host", (cause,)):
            if one.name in present:
                found.add(_event(HOST, one, cause), ("cause",))
        for one in recurrences(kept, "gpu", (cause,)):
            if one.name in gpus:
                found.add(_event(GPU, one, cause), ("cause",))
    return found


def _event(signature: str, one: Recurrence, cause: str) -> Event:
    fields = {
        "host": one.host or "",
        "gpu": one.name,
        "cause": cause,
        "times": str(one.times),
        "days": str(DAYS),
        "first": times.show(one.first),
        "last": times.show(one.last),
        "incidents": " ".join(map(str, one.incidents)),
    }
    if signature == HOST:
        del fields["gpu"]
    context = Context(host=one.host)
    return Event(signature, SOURCE, max(one.incidents), one.says(DAYS, "en"), context, "context", fields)


def _each(observations: Observations) -> Iterator[Event]:
    """Yield one event of every kind of line and process."""
    for by_key in observations.buckets.values():
        for bucket in by_key.values():
            yield from bucket.first[:1]


def hosts(observations: Observations) -> set[str]:
    """Return the hosts that the observations name."""
    named = {event.context.host for event in _each(observations)}
    named |= {info.host for info in observations.sources.values()}
    return {host for host in named if host}


def _failing_gpus(observations: Observations) -> Iterator[str]:
    """Yield the GPUs that lines of failures name, as ``recurrence.gpu_name`` does."""
    for event in observations.kept():
        host = event.context.host
        if not event.is_failure or not host:
            continue
        if event.context.gpu is not None:
            yield f"{host} GPU {event.context.gpu}"
        bus = event.fields.get("bdf", "").lower().split(".")[0].split(":")[-2:]
        if len(bus) == 2:
            yield f"{host} GPU {':'.join(bus)}"


def earliest(when: float) -> float:
    """Return from when on failures before a moment count."""
    return when - DAYS * DAY
