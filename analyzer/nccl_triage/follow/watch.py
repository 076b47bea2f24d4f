"""Watches a running job: decides when to diagnose it, when a verdict is news, and when a hang is suspected."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from nccl_triage.classifier.model import Model
from nccl_triage.diagnosis.findings import Findings, Status, Verdict
from nccl_triage.document import evidence
from nccl_triage.document.diagnosis import Diagnosis, diagnose_observations
from nccl_triage.engine.schema import RuleSet
from nccl_triage.follow import hang
from nccl_triage.follow.follower import Follower
from nccl_triage.ingest import context_lines
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations

#: Why a verdict is announced: the first one, a changed one, a suspected hang, the end of following.
VerdictReason = Literal["first", "update", "hang", "end"]
#: Seconds without news of a failure before a diagnosis is made, and the most seconds to wait for them.
SETTLE, SETTLE_TIMEOUT = 2.0, 15.0
#: The pause after a diagnosis, as a multiple of the time that it took.
REST = 10.0


@dataclass(frozen=True, slots=True)
class VerdictState:
    """The parts of a verdict whose change is news: its cause, how sure it is, and the culprits."""

    verdict: Verdict
    cause: str | None
    status: Status | None
    culprits: frozenset[tuple[int | None, str | None, str | None, int | None]]

    @classmethod
    def of(cls, found: Findings) -> VerdictState:
        """Return the state of a diagnosis."""
        if found.verdict == "unknown" and not found.case.story.outcome.is_bad:
            return cls("healthy", None, None, frozenset())  # a job that starts or goes on has no failure
        if found.verdict != "diagnosed" or not found.candidates:
            return cls(found.verdict, None, None, frozenset())
        best = found.candidates[0]
        culprits = frozenset((one.rank, one.host, one.address, one.gpu) for one in best.culprits)
        return cls(found.verdict, best.id, best.status, culprits)


@dataclass(slots=True)
class DiagnosisPace:
    """Decides when the next diagnosis is due: soon after the last news, and seldom where it takes long."""

    _known: int = 0
    _since: float | None = None
    _rested: float = 0.0

    def due(self, version: int, changed: float, now: float) -> bool:
        """Tell whether to diagnose now; ``version`` grows with every piece of news, ``changed`` is the time of the last."""
        if version == self._known:
            return False
        if self._since is None:
            self._since = now
        return now >= self._rested and (now - changed >= SETTLE or now - self._since >= SETTLE_TIMEOUT)

    def done(self, version: int, now: float, took: float) -> None:
        """Note that this version has just been diagnosed."""
        self._known, self._since, self._rested = version, None, now + REST * took


def reason(found: VerdictState, said: VerdictState | None) -> VerdictReason | None:
    """Return why a verdict is to be announced, None when it is no news."""
    if said is None:
        return "first" if found.verdict != "healthy" else None
    return "update" if found != said else None


class Announcing(Protocol):
    """Delivers the verdicts of a watched job."""

    def say(
        self, found: dict[str, Any], reason: VerdictReason, hang: dict[str, Any] | None, silent: float | None = None
    ) -> dict[str, Any]:
        """Deliver a verdict and return its document; ``silent``: seconds for which a hang was suspected wrongly."""
        ...


class JobWatch:
    """A watched job: diagnoses it when there is news, suspects a hang when there is none, and announces what is new."""

    def __init__(
        self,
        follower: Follower,
        rules: RuleSet,
        model: Model | None,
        announcer: Announcing,
        factor: float,
        recall: Callable[[Observations], Observations],
    ) -> None:
        self._follower = follower
        self._rules = rules
        self._model = model
        self._announcer = announcer
        self._factor = factor
        self._recall = recall
        self._pace = DiagnosisPace()
        self._said: VerdictState | None = None
        self._found: VerdictState | None = None
        self._hang: dict[str, Any] | None = None
        self._since: float | None = None

    def step(self) -> None:
        """Diagnose if that is due, check for a hang, and announce what is new."""
        follower, now = self._follower, time.monotonic()
        if not follower.starting and self._pace.due(follower.version, follower.changed, now):
            version = follower.version
            found = self._diagnose(follower.observations())
            self._pace.done(version, time.monotonic(), time.monotonic() - now)
            self._found = VerdictState.of(found)
            why = reason(self._found, self._said)
            if why is not None:
                self._said = self._found
                self._announcer.say(self._document(found), why, self._hang)
        self._check_for_hang()

    def finish(self) -> dict[str, Any]:
        """Announce the verdict on everything that was read, and return its document."""
        found = self._diagnose(self._follower.finish())
        return self._announcer.say(self._document(found), "end", self._hang)

    @property
    def hang_suspected(self) -> bool:
        """Whether a hang is suspected at present."""
        return self._hang is not None

    def _check_for_hang(self) -> None:
        """Suspect a hang, or withdraw the suspicion; a job that has failed is not suspected."""
        heartbeats, now = self._follower.heartbeats, time.time()
        if self._since is not None:
            if heartbeats.advanced is not None and heartbeats.advanced > self._since:
                silent, self._since, self._hang = heartbeats.advanced - self._since, None, None
                found = self._diagnose(self._follower.observations())
                self._announcer.say(self._document(found), "update", None, silent)
            return
        if self._follower.starting or (self._found is not None and self._found.verdict != "healthy"):
            return
        allowed = hang.limit(heartbeats, self._factor)
        if allowed is None or heartbeats.advanced is None or now - heartbeats.advanced < allowed:
            return
        found = self._diagnose(self._follower.observations())

        def rank_of(event: Event) -> int | None:
            return found.case.rank(event)

        suspicion = hang.suspect(heartbeats, now, self._factor, rank_of)
        if suspicion is not None:
            self._since, self._hang = suspicion.since, hang.describe(suspicion)
            self._announcer.say(self._document(found), "hang", self._hang)

    def _diagnose(self, observations: Observations) -> Diagnosis:
        known = observations.merge(self._recall(observations))
        return diagnose_observations(known, self._rules, self._model)

    def _document(self, found: Diagnosis) -> dict[str, Any]:
        found.excerpts = context_lines.read_all(self._follower.sources(), evidence.excerpt_lines(found))
        return found.to_dict()
