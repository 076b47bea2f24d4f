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
from nccl_triage.errors import TriageError
from nccl_triage.events import Observations
from nccl_triage.history import marks
from nccl_triage.history.model import Incident, Input
from nccl_triage.history.patience import TooSlow, within

#: Seconds that a run gives to the history, once to ask and once to tell.
LIMIT = 1.5
#: Is told a template of ``messages`` and its values.
Tell = Callable[..., None]


def _nobody(template: str, **values: object) -> None:
    """Tell nobody."""


class Memory:
    """The history as one run uses it; ``writes`` false only asks."""

    def __init__(self, path: Path | None, tell: Tell = _nobody, *, writes: bool = True, limit: float = LIMIT) -> None:
        self._path, self._tell, self._writes, self._limit = path, tell, writes, limit
        self._marks: dict[str, tuple[str, ...]] = {}
        self._answers: dict[object, list[Incident]] = {}
        self._hushed = False

    def recall(self, observations: Observations) -> Observations:
        """Return what earlier failures say of the hosts that were observed."""
        if self._path is None:
            return Observations()
        self._marks = marks.of(observations)
        from nccl_triage.history import recall

        if not recall.failed(observations) or not recall.hosts(observations):
            return Observations()
        when = recall.moment(observations, time.time())
        try:
            earlier = within(self._limit, lambda: self._earlier(recall.earliest(when), when))
        except (TriageError, TooSlow, ImportError) as error:
            template = "the history is not asked: {why}"
            self._say(template, error)
            return Observations()
        return recall.recall(observations, earlier)

    def keep(self, document: Mapping[str, Any]) -> None:
        """Keep what a document says; nothing where the history only asks, or was seen not to answer."""
        path = self._path
        if path is None or not self._writes or self._hushed:
            return
        try:
            within(self._limit, lambda: self._store(path, document))
        except (TriageError, TooSlow, ImportError) as error:
            template = "nothing is kept in the history: {why}"
            self._say(template, error)

    def _earlier(self, since: float, until: float) -> list[Incident]:
        """Return the incidents of a time without those that these logs themselves told of; each time is asked for once."""
        assert self._path is not None
        key = (int(since), tuple(sorted(self._marks)))
        if key not in self._answers:
            if not self._path.exists():
                return []
            from nccl_triage.history import store

            opened = store.readable(self._path, self._limit * 0.6)
            if opened is None:
                return []
            with opened as history:
                own = history.same(Input(path, marks=mark) for path, mark in self._marks.items())
                self._answers[key] = [one for one in history.incidents(since, until) if one.id not in own]
        return self._answers[key]

    def _store(self, path: Path, document: Mapping[str, Any]) -> None:
        from nccl_triage.history import record, store

        made = record.incident(document, time.time(), self._marks)
        with store.writable(path, self._limit * 0.6) as history:
            history.keep(made)

    def _say(self, said: str, error: Exception) -> None:
        """Say once what is wrong."""
        if self._hushed:
            return
        self._hushed = isinstance(error, TooSlow)
        if isinstance(error, TriageError):
            why = {lang: error.in_language(lang)[0] for lang in ("en", "zh")}
        else:
            template = "it does not answer" if isinstance(error, TooSlow) else "this Python has no SQLite"
            why = {lang: messages.fill(template, {}, lang) for lang in ("en", "zh")}
        self._tell(said, why=why)
