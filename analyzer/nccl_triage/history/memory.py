"""The history of one run: consulted before the diagnosis, written after it; its errors are reported and cost no more.

``diagnose(paths, further=[memory.recall])`` weighs what is known of the hosts; ``memory.keep(document)`` keeps the result.
It is consulted only for jobs that failed, and written after the verdict was printed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from nccl_triage import messages
from nccl_triage.errors import HistoryError, TriageError
from nccl_triage.history.incidents import Input, JobIdentity, KeptIncident, identity_of, marks_of
from nccl_triage.observations.store import Observations

Result = TypeVar("Result")


class TimedOutError(Exception):
    """The work did not finish in time; it goes on in a daemon thread and ends with the program."""


def run_within(seconds: float, work: Callable[[], Result]) -> Result:
    """Return what the work returns, or raise what it raises; raises TimedOutError when it takes longer.

    A thread that waits for a dead file server cannot be interrupted, but the others can go on.
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


#: The most seconds for reading the history before the verdict, and for writing it afterwards.
ASK, KEEP = 1.0, 10.0
#: Seconds of these to wait for the lock of the database.
_ASKING, _KEEPING = 0.3, 0.9
#: Receives a template of ``messages`` and its values.
Tell = Callable[..., None]


def _nobody(template: str, **values: object) -> None:
    """Discard a message."""


class Memory:
    """The history as one run uses it; without ``writes`` it is only read."""

    def __init__(self, path: Path | None, tell: Tell = _nobody, *, writes: bool = True, job: str | None = None) -> None:
        """``job`` is the name that the user gives the job: its runs are told by it, whatever their logs are called."""
        self._path, self._tell, self._writes, self._name = path, tell, writes, job
        self._job = JobIdentity(job)
        self._marks: dict[str, tuple[str, ...]] = {}
        self._answers: dict[object, list[KeptIncident]] = {}
        self._unanswered: Exception | None = None

    def recall(self, observations: Observations) -> Observations:
        """Return the earlier failures of the observed hosts, as observations."""
        path = self._path
        if path is None:
            return Observations()
        self._marks, self._job = marks_of(observations), identity_of(observations, self._name)
        from nccl_triage.history import recurrence

        if isinstance(self._unanswered, TimedOutError) or not recurrence.failed(observations):
            return Observations()
        from nccl_triage.story.line_origins import correct_origins

        observations = correct_origins(observations)
        nameless = self._name is None and not recurrence.job_names(observations.sources)
        if nameless and not recurrence.hosts_of_job(observations):
            return Observations()
        when = recurrence.time_of_failure(observations, time.time())
        try:
            earlier = run_within(ASK, lambda: self._earlier(path, recurrence.earliest(when), when))
            return recurrence.recall(observations, earlier, self._job)
        except Exception as error:  # whatever it is, the logs can be diagnosed without it
            self._unanswered = error
            return Observations()

    def keep(self, document: Mapping[str, Any]) -> None:
        """Keep the incident of a document, and report errors of the history."""
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
        """Return the incidents of a time, with the paths of their logs, but those of these logs; each time is asked for once."""
        key = (int(since), self._job, tuple(sorted(self._marks)))
        if key not in self._answers:
            from nccl_triage.history import store

            opened = store.readable(path, _ASKING)
            if opened is None:
                return []
            with opened as history:
                own = history.same((Input(name, marks=mark) for name, mark in self._marks.items()), self._job)
                paths = history.paths(since, until)
                self._answers[key] = [
                    replace(one, inputs=tuple(map(Input, paths.get(one.id, ()))))
                    for one in history.incidents(since, until)
                    if one.id not in own
                ]
        return self._answers[key]

    def _store(self, path: Path, document: Mapping[str, Any]) -> None:
        from nccl_triage.history import record

        keep(path, record.incident(document, time.time(), self._marks, self._job))


def keep(path: Path, incident: KeptIncident, timeout: float = _KEEPING) -> None:
    """Store an incident, or leave it in a file while the database is locked; raises HistoryError."""
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
