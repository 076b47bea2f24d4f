"""Watch a job that is followed: diagnose when there is news, suspect a hang when there is none, and say what is new."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from nccl_triage.classifier.model import Model
from nccl_triage.cli import language
from nccl_triage.cli.announce import Announcer
from nccl_triage.cli.output import Document
from nccl_triage.diagnosis import silence, updates
from nccl_triage.diagnosis.updates import Pace, ReportedVerdict
from nccl_triage.document import evidence, hang
from nccl_triage.document.diagnosis import Diagnosis, diagnose_observations
from nccl_triage.engine.schema import RuleSet
from nccl_triage.events import Event, Observations
from nccl_triage.execution.follow import Follower
from nccl_triage.ingest import windows
from nccl_triage.render.phrases import duration


class Live:
    """What is known of the job, and what was said of it."""

    def __init__(
        self,
        follower: Follower,
        rules: RuleSet,
        model: Model | None,
        announcer: Announcer,
        factor: float,
        recall: Callable[[Observations], Observations],
    ) -> None:
        self._follower = follower
        self._rules = rules
        self._model = model
        self._announcer = announcer
        self._factor = factor
        self._recall = recall
        self._pace = Pace()
        self._said: ReportedVerdict | None = None
        self._found: ReportedVerdict | None = None
        self._hang: dict[str, Any] | None = None
        self._since: float | None = None

    def step(self) -> None:
        """Look whether there is something to say."""
        follower, now = self._follower, time.monotonic()
        if not follower.starting and self._pace.due(follower.version, follower.changed, now):
            version = follower.version
            found = self._diagnose(follower.observations())
            self._pace.done(version, time.monotonic(), time.monotonic() - now)
            self._found = ReportedVerdict.of(found)
            why = updates.reason(self._found, self._said)
            if why is not None:
                self._said = self._found
                self._announcer.say(self._document(found), why, self._hang)
        self._listen()

    def finish(self) -> Document:
        """Say the last verdict, on everything that was read, and return its document."""
        found = self._diagnose(self._follower.finish())
        return self._announcer.say(self._document(found), "end", self._hang)

    def status(self) -> str:
        """Return how the job stands, in a line."""
        hearing = self._follower.hearing
        ranks = {voice.last.context.rank for voice in hearing.voices.values()} - {None}
        parts = [language.text("following, logs: {count}", count=len(self._follower.logs))]
        if ranks:
            parts.append(language.text("ranks: {count}", count=len(ranks)))
        steps = [
            step
            for voice in hearing.voices.values()
            if voice.step is not None and (step := voice.step.number("step")) is not None
        ]
        if steps:
            parts.append(language.text("step {step}", step=int(max(steps))))
        if hearing.advanced is not None:
            age = duration(max(0.0, time.time() - hearing.advanced), language.current())
            parts.append(language.text("progress {age} ago", age=age))
        if self._hang is not None:
            parts.append(language.text("hang suspected"))
        return ", ".join(parts)

    def _listen(self) -> None:
        """Suspect that the job hangs, or take the suspicion back; one that has failed need not be suspected."""
        hearing, now = self._follower.hearing, time.time()
        if self._since is not None:
            if hearing.advanced is not None and hearing.advanced > self._since:
                silent, self._since, self._hang = hearing.advanced - self._since, None, None
                found = self._diagnose(self._follower.observations())
                self._announcer.say(self._document(found), "update", None, silent)
            return
        if self._follower.starting or (self._found is not None and self._found.verdict != "healthy"):
            return
        allowed = silence.limit(hearing, self._factor)
        if allowed is None or hearing.advanced is None or now - hearing.advanced < allowed:
            return
        found = self._diagnose(self._follower.observations())

        def rank_of(event: Event) -> int | None:
            return found.case.rank(event)

        suspicion = silence.suspect(hearing, now, self._factor, rank_of)
        if suspicion is not None:
            self._since, self._hang = suspicion.since, hang.describe(suspicion)
            self._announcer.say(self._document(found), "hang", self._hang)

    def _diagnose(self, observations: Observations) -> Diagnosis:
        known = observations.merge(self._recall(observations))
        return diagnose_observations(known, self._rules, self._model)

    def _document(self, found: Diagnosis) -> Document:
        found.excerpts = windows.read_all(self._follower.sources(), evidence.excerpt_lines(found))
        return found.to_dict()
