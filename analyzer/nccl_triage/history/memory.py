"""The history of one run: consulted before the diagnosis, written after it; its errors are reported and cost no more.

``diagnose(paths, further=[memory.recall])`` weighs what is known of the hosts; ``memory.keep(document)`` keeps the result.
It is consulted only for jobs that failed, and written after the verdict was printed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from nccl_triage import messages
from nccl_triage.errors import HistoryError, TriageError
from nccl_triage.events import Observations
from nccl_triage.history import model
from nccl_triage.history.model import Input, KeptIncident

Result = TypeVar("Result")


class TimedOutError(Exception):
    """The work is not done; it goes on where nobody waits for it, and ends with the program."""


def run_within(seconds: float, work: Callable[[], Result]) -> Result:
    """Return what the work returns, or raise what it raises; raises TooSlow when it takes longer.

    The kernel does not give a process back that waits for a dead file server, but it gives back its other threads.
    """
    results: list[Result] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=run, name="history", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimedOutError
    if problems:
        raise problems[0]
    return results[0]


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
        self._answers: dict[object, list[KeptIncident]] = {}
        self._unanswered: Exception | None = None

    def recall(self, observations: Observations) -> Observations:
        """Return what earlier failures say of the hosts that were observed."""
        path = self._path
        if path is None:
            return Observations()
        self._marks = model.marks_of(observations)
        from nccl_triage.history import recurrence

        if isinstance(self._unanswered, TimedOutError) or not recurrence.failed(observations):
            return Observations()
        from nccl_triage.story.collected import settled

        observations = settled(observations)
        if not recurrence.hosts_of_job(observations):
            return Observations()
        when = recurrence.time_of_failure(observations, time.time())
        try:
            earlier = run_within(ASK, lambda: self._earlier(path, recurrence.earliest(when), when))
            return recurrence.recall(observations, earlier)
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
                run_within(KEEP, lambda: self._store(path, document))
            except Exception as problem:
                template = "this diagnosis is not kept: {why}"
                self._tell(template, why=_why(problem))
                return
        if error is not None:
            template = "earlier failures are not considered: {why}"
            self._tell(template, why=_why(error))

    def _earlier(self, path: Path, since: float, until: float) -> list[KeptIncident]:
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


def keep(path: Path, incident: KeptIncident, timeout: float = _KEEPING) -> None:
    """Store an incident, or leave it beside the database while others write; raises HistoryError."""
    from nccl_triage.history import store

    try:
        with store.writable(path, timeout) as history:
            history.keep(incident)
    except HistoryError as error:
        if not error.busy:
            raise
        try:
            store.leave_waiting(path, incident)
        except OSError:
            raise error from None


def _why(error: Exception) -> dict[str, str]:
    """Return what is wrong, in both languages."""
    if isinstance(error, TriageError):
        return {lang: error.in_language(lang)[0] for lang in ("en", "zh")}
    template = "{kind}: {error}"
    if isinstance(error, TimedOutError):
        template = "the history does not answer"
    elif isinstance(error, ImportError):
        template = "this Python has no SQLite"
    values: dict[str, object] = {"kind": type(error).__name__, "error": error}
    return {lang: messages.fill(template, values, lang) for lang in ("en", "zh")}
