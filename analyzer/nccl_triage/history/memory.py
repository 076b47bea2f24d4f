"""The history of one run: asked before the diagnosis, told after it; whatever is wrong with it is said and costs no more.

``diagnose(paths, further=[memory.recall])`` weighs what is known of the hosts; ``memory.keep(document)`` keeps what was
found. It is asked only about jobs that failed, and told after the verdict was printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nccl_triage import messages
from nccl_triage.errors import HistoryError, TriageError
from nccl_triage.history import marks
from nccl_triage.history.model import Incident, Input
from nccl_triage.history.patience import TooSlow, within
from nccl_triage.observations.store import Observations

#: Seconds that a run gives to the history: before the verdict to ask, after it to tell.
ASK, KEEP = 1.0, 10.0
#: Seconds of these that it waits for others that write.
_ASKING, _KEEPING = 0.3, 0.9
#: Is told a template of ``messages`` and its values.
Tell = Callable[..., None]


def _nobody(template: str, **values: object) -> None:
    """Tell nobody."""


class Memory:
    """The history as one run uses it; ``writes`` false only asks."""

    def __init__(self, path: Path | None, tell: Tell = _nobody, *, writes: bool = True) -> None:
        self._path, self._tell, self._writes = path, tell, writes
        self._marks: dict[str, tuple[str, ...]] = {}
        self._answers: dict[object, list[Incident]] = {}
        self._unanswered: Exception | None = None

    def recall(self, observations: Observations) -> Observations:
        """Return what earlier failures say of the hosts that were observed."""
        path = self._path
        if path is None:
            return Observations()
        self._marks = marks.of(observations)
        from nccl_triage.history import recall

        if isinstance(self._unanswered, TooSlow) or not recall.failed(observations):
            return Observations()
        from nccl_triage.story.collected import settled

        observations = settled(observations)
        if not recall.hosts(observations):
            return Observations()
        when = recall.moment(observations, time.time())
        try:
            earlier = within(ASK, lambda: self._earlier(path, recall.earliest(when), when))
            return recall.recall(observations, earlier)
        except Exception as error:  # whatever it is, the logs can be diagnosed without it
            self._unanswered = error
            return Observations()

    def keep(self, document: Mapping[str, Any]) -> None:
        """Keep what a document says, and say what went wrong with the history, which nobody has to wait for any more."""
        path = self._path
        if path is None:
            return
        error = self._unanswered
        if self._writes:
            try:
                within(KEEP, lambda: self._store(path, document))
            except Exception as problem:
                template = "this diagnosis is not kept: {why}"
                self._tell(template, why=_why(problem))
                return
        if error is not None:
            template = "earlier failures are not considered: {why}"
            self._tell(template, why=_why(error))

    def _earlier(self, path: Path, since: float, until: float) -> list[Incident]:
        """Return the incidents of a time without those that these logs themselves told of; each time is asked for once."""
        key = (int(since), tuple(sorted(self._marks)))
        if key not in self._answers:
            from nccl_triage.history import store

            opened = store.readable(path, _ASKING)
            if opened is None:
                return []
            with opened as history:
                own = history.same(Input(name, marks=mark) for name, mark in self._marks.items())
                self._answers[key] = [one for one in history.incidents(since, until) if one.id not in own]
        return self._answers[key]

    def _store(self, path: Path, document: Mapping[str, Any]) -> None:
        from nccl_triage.history import record

        keep(path, record.incident(document, time.time(), self._marks))


def keep(path: Path, incident: Incident, patience: float = _KEEPING) -> None:
    """Store an incident, or leave it beside the database while others write; raises HistoryError."""
    from nccl_triage.history import store, waiting

    try:
        with store.writable(path, patience) as history:
            history.keep(incident)
    except HistoryError as error:
        if not error.busy:
            raise
        try:
            waiting.leave(path, incident)
        except OSError:
            raise error from None


def _why(error: Exception) -> dict[str, str]:
    """Return what is wrong, in both languages."""
    if isinstance(error, TriageError):
        return {lang: error.in_language(lang)[0] for lang in ("en", "zh")}
    template = "{kind}: {error}"
    if isinstance(error, TooSlow):
        template = "the history does not answer"
    elif isinstance(error, ImportError):
        template = "this Python has no SQLite"
    values: dict[str, object] = {"kind": type(error).__name__, "error": error}
    return {lang: messages.fill(template, values, lang) for lang in ("en", "zh")}
