"""When the verdict on a running job is reported, and when it has changed enough to be reported again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nccl_triage.diagnosis.model import Findings, Status, Verdict

#: Why a verdict is reported: it is the first one, it has changed, a hang is suspected, the job is no longer followed.
Reason = Literal["first", "update", "hang", "end"]
#: Seconds without news after which a verdict is settled, and seconds after which it is reported anyway.
SETTLE, PATIENCE = 2.0, 15.0
#: Pause after a diagnosis, as a multiple of the time that it took.
REST = 10.0


@dataclass(frozen=True, slots=True)
class ReportedVerdict:
    """The part of a verdict whose change is reported: cause, status and culprits."""

    verdict: Verdict
    cause: str | None
    status: Status | None
    culprits: frozenset[tuple[int | None, str | None, str | None, int | None]]

    @classmethod
    def of(cls, found: Findings) -> ReportedVerdict:
        """Return what matters of a diagnosis."""
        if found.verdict == "unknown" and not found.case.story.outcome.is_bad:
            return cls("healthy", None, None, frozenset())  # a job that begins, or goes on, has said nothing bad
        if found.verdict != "diagnosed" or not found.candidates:
            return cls(found.verdict, None, None, frozenset())
        best = found.candidates[0]
        culprits = frozenset((one.rank, one.host, one.address, one.gpu) for one in best.culprits)
        return cls(found.verdict, best.id, best.status, culprits)


@dataclass(slots=True)
class Pace:
    """When the next diagnosis is due: soon after the news settles, and less often when a diagnosis takes long."""

    _known: int = 0
    _since: float | None = None
    _rested: float = 0.0

    def due(self, version: int, changed: float, now: float) -> bool:
        """Tell whether to diagnose now; ``version`` grows with each piece of news, the last of which came at ``changed``."""
        if version == self._known:
            return False
        if self._since is None:
            self._since = now
        return now >= self._rested and (now - changed >= SETTLE or now - self._since >= PATIENCE)

    def done(self, version: int, now: float, took: float) -> None:
        """Note that a diagnosis of this version has just been made."""
        self._known, self._since, self._rested = version, None, now + REST * took


def reason(found: ReportedVerdict, said: ReportedVerdict | None) -> Reason | None:
    """Return why a verdict is to be reported, None when nothing has changed."""
    if said is None:
        return "first" if found.verdict != "healthy" else None
    return "update" if found != said else None
