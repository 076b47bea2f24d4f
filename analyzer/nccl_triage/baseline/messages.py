"""Compares the messages of two runs: warnings and errors that the good run never printed, and where the runs diverge."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_triage.baseline.run_difference import RunDifference, place
from nccl_triage.diagnosis.case import Case
from nccl_triage.observations.event import Event
from nccl_triage.parsers import templates
from nccl_triage.parsers.unknown_errors import SALIENT

#: Messages told of those before the first failure, and of failures.
MAX_BEFORE, MAX_FAILURES = 6, 4
#: Shapes of host names that are folded in messages.
MAX_HOSTS = 64
_ALARMING = ("W", "WARN", "WARNING", "E", "ERROR", "F", "FATAL", "CRITICAL")
#: First lines of blocks, which mean nothing by themselves.
_HEADS = ("Traceback (most recent call last)", "frame #", "=====")
#: Stages of a job by the kinds of lines that open them, the last first.
_STAGES = (
    ("steps", ()),
    ("first collective", ("communicator.ready",)),
    ("communicator", ("communicator.starting", "interface.chosen")),
    ("rendezvous", ("job.restarted", "rendezvous.failed", "setup")),
)
#: Lines that state settings: these differences have subjects of their own.
_SETTINGS = ("variable", "software.version")
#: Lines of the good run that the bad one lacks are told where they are steps of the work; so is the end.
_MILESTONES = (
    "job.restarted", "interface.chosen", "communicator.starting", "communicator.ready", "job.finished",
)  # fmt: skip


class MessageVocabulary:
    """The messages of a run: signatures, and templates of lines without a signature."""

    def __init__(self, case: Case) -> None:
        self._hosts = sorted({templates.template(host) for host in case.identity.hosts})[:MAX_HOSTS]
        self.signatures = set(case.observations.signatures())
        self.templates = {self.template(event) for event in case.of(SALIENT)}

    def template(self, event: Event) -> str:
        """Return the template of a line, its hosts folded too."""
        text = event.fields.get("template") or templates.template(event.text)
        for host in self._hosts:
            text = text.replace(host, "<host>") if len(host) > 2 else text
        return text


def compare(good: Case, bad: Case) -> Iterator[RunDifference]:
    """Yield where the runs part, then the messages that only the bad run has: those before its first failure first."""
    known, own = MessageVocabulary(good), MessageVocabulary(bad)
    fresh = [event for event in bad.events if _is_new(event, known, own) and not event.text.startswith(_HEADS)]
    first = next((bad.position(event) for event in bad.events if event.is_failure), len(bad.events))
    yield from _divergence(good, bad, fresh)
    told: set[object] = set()
    before = after = 0
    for event in fresh:
        marks = {own.template(event), (event.source, event.line)}
        if marks & told or event.signature in told or not _alarming(event):
            continue
        told |= marks if event.signature == SALIENT else {*marks, event.signature}
        if bad.position(event) < first and before < MAX_BEFORE:
            before += 1
        elif bad.position(event) >= first and after < MAX_FAILURES:
            after += 1
        else:
            continue
        further = {"when": "before" if bad.position(event) < first else "after"}
        yield RunDifference("message", event.signature, None, event.text, event, None, further, event.text)


def _is_new(event: Event, known: MessageVocabulary, own: MessageVocabulary) -> bool:
    if event.signature == SALIENT:
        return own.template(event) not in known.templates
    return event.signature not in known.signatures


def _alarming(event: Event) -> bool:
    level = (event.context.level or "").upper()
    return event.is_failure or event.signature == SALIENT or level in _ALARMING


def _divergence(good: Case, bad: Case, fresh: list[Event]) -> Iterator[RunDifference]:
    """Yield the first line without counterpart, with its stage and what the good run did that never came."""
    mine = set(bad.observations.signatures())
    missing = next((e for e in good.events if e.signature not in mine and _is_milestone(e)), None)
    at = next((event for event in fresh if event.kind not in _SETTINGS), None)
    if at is None and missing is not None and bad.events:
        at = bad.events[-1]  # it says nothing new, it just ends
    if at is not None:
        instead = None if missing is None else missing.text
        yield RunDifference("divergence", _stage(bad, at), instead, at.text, at, place(missing), {}, at.text)


def _is_milestone(event: Event) -> bool:
    return event.role == "progress" or event.kind in _MILESTONES


def _stage(case: Case, event: Event) -> str:
    """Return the stage of the job in which a line stands."""
    position = case.position(event)
    for name, kinds in _STAGES:
        opened = case.of(*kinds) if kinds else [e for e in case.events if e.role == "progress"]
        if any(case.position(one) <= position for one in opened[:1]):
            return name
    return "start"
