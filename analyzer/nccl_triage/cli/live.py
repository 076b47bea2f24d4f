"""Watch a job that is followed: when to diagnose, what to report, and the command of ``--on-verdict``."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from nccl_triage import errors
from nccl_triage.cli import language, output
from nccl_triage.cli.output import Document, OutputOptions
from nccl_triage.cli.progress import StatusLine
from nccl_triage.errors import UsageError
from nccl_triage.follow.hang import stamp
from nccl_triage.follow.watch import VerdictReason
from nccl_triage.render.words import culprit_name, visible

#: Seconds that the command may take, and seconds from SIGTERM to SIGKILL.
LIMIT, GRACE = 30.0, 2.0
#: Maximum number of verdicts waiting for the command.
MAX_WAITING = 8
_MAX_VALUE = 500


def command_words(text: str) -> list[str]:
    """Return the command as words; raises UsageError for one that cannot be run."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError("the command of --on-verdict cannot be parsed", cause="{why}", why=error) from None
    if not words or shutil.which(words[0]) is None:
        raise UsageError(
            "--on-verdict: there is no command {name}",
            name=words[0] if words else "''",
            remedy="it is run without a shell; for pipes and variables write: --on-verdict \"sh -c '...'\"",
        )
    return words


def variables(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables of the command."""
    best = (document.get("diagnoses") or [{}])[0] if document.get("verdict") == "diagnosed" else {}
    culprits = best.get("culprits") or []
    found = {
        "VERDICT": document.get("verdict"),
        "CAUSE": best.get("cause"),
        "CULPRIT": culprit_name(culprits[0], "en") if culprits else None,
        "CONFIDENCE": best.get("confidence"),
        "REASON": (document.get("follow") or {}).get("reason"),
    }
    return {f"NCCL_TRIAGE_{name}": "" if value is None else visible(value, _MAX_VALUE) for name, value in found.items()}


@dataclass(slots=True)
class _Run:
    process: subprocess.Popen[bytes]
    deadline: float
    told: bool = False


@dataclass(slots=True)
class VerdictCommand:
    """Runs the command for each verdict in turn; ``tell`` reports errors."""

    words: list[str]
    tell: Callable[..., None]
    limit: float = LIMIT
    _waiting: deque[tuple[bytes, dict[str, str]]] = field(default_factory=deque)
    _run: _Run | None = None

    def call(self, document: bytes, environment: dict[str, str]) -> None:
        """Run the command, now or after it has ended for the previous verdict."""
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self.tell("--on-verdict: the command is too slow; a verdict was left out")
        self._waiting.append((document, environment))
        self.poll()

    def poll(self) -> None:
        """Check whether the command has ended or timed out, and start it for the next waiting verdict."""
        if self._run is not None:
            self._watch(self._run)
        if self._run is None and self._waiting:
            self._start(*self._waiting.popleft())

    def finish(self) -> None:
        """Wait until the command has run for all verdicts; each run has its own time limit."""
        while self._run is not None or self._waiting:
            self.poll()
            time.sleep(0.02)

    def kill(self) -> None:
        """End the command, if it runs, at once."""
        self._waiting.clear()
        if self._run is not None:
            _signal(self._run.process, signal.SIGKILL)
            self._run.process.wait()
            self._run = None

    def _start(self, document: bytes, environment: dict[str, str]) -> None:
        try:
            # A file, since a pipe would wait for a command that does not read it.
            with tempfile.TemporaryFile() as stdin:
                stdin.write(document)
                stdin.seek(0)
                self._run = _Run(self._spawn(stdin, environment), time.monotonic() + self.limit)
        except OSError as error:
            self.tell("--on-verdict: the command cannot be run ({reason})", reason=error.strerror or error)

    def _spawn(self, stdin: IO[bytes], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        # Standard output is for verdicts; a session of its own, so that Ctrl-C does not end it in the middle.
        return subprocess.Popen(
            self.words, stdin=stdin, stdout=2, env={**os.environ, **environment}, start_new_session=True
        )

    def _watch(self, run: _Run) -> None:
        code = run.process.poll()
        if code is not None:
            self._run = None
            if code and not run.told:
                self.tell("--on-verdict: the command failed with exit code {code}", code=code)
        elif time.monotonic() > run.deadline:
            if run.told:
                _signal(run.process, signal.SIGKILL)
                return
            self.tell("--on-verdict: the command took longer than {limit} s and was ended", limit=f"{self.limit:g}")
            run.told, run.deadline = True, time.monotonic() + GRACE
            _signal(run.process, signal.SIGTERM)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the command and what it has started."""
    try:
        os.killpg(process.pid, number)
    except OSError:
        return


#: Formats whose documents can be concatenated.
_STREAMS = ("text", "json", "ndjson")


def _gist(shown: Document) -> object:
    """Return what makes two verdicts the same for a reader: headline, cause, how sure it is, culprits, notes."""
    best = shown["diagnoses"][0] if shown["verdict"] == "diagnosed" and shown["diagnoses"] else {}
    culprits = [culprit_name(one, "en") for one in best.get("culprits") or []]
    return shown["headline"], best.get("cause"), best.get("status"), culprits, shown["notes"]


class Announcer:
    """Delivers verdicts; a failed write before the end is reported, and following goes on."""

    def __init__(self, wish: OutputOptions, hook: VerdictCommand | None, line: StatusLine) -> None:
        self._wish = wish
        self._hook = hook
        self._line = line
        self._number = 0
        #: What the verdict that stands on standard output says.
        self._shown: object = None

    def say(
        self, found: Document, reason: VerdictReason, hang: dict[str, Any] | None, silent: float | None = None
    ) -> Document:
        """Deliver a verdict and return its document; ``silent`` is how many seconds a hang was wrongly suspected."""
        self._number += 1
        document = self._document(found, reason, hang)
        shown = output.redacted(document) if self._wish.redact else document
        self._line.erase()
        try:
            self._deliver(document, shown, reason, silent)
        except errors.OutputError as error:
            if reason == "end":
                raise
            for text in error.lines(self._wish.lang):
                self._wish.say({"en": text, "zh": text})
        if self._hook is not None:
            from nccl_triage.render import render

            self._hook.call(render(shown, "json", lang=self._wish.lang), variables(shown))
        # The files are ours from now on.
        self._wish = self._wish._replace(force=True)
        return document

    def _document(self, found: Document, reason: VerdictReason, hang: dict[str, Any] | None) -> Document:
        from nccl_triage.redaction.secrets import mask_secrets

        follow = {"reason": reason, "number": self._number, "time": stamp(time.time()), "hang": hang}
        document = {**found, "follow": follow}
        if hang is not None:
            from nccl_triage.render import phrases as hangs

            note = hangs.hang_note(hang)
            document["notes"] = [*found["notes"], note["en"]]
            document["notes_zh"] = [*found["notes_zh"], note["zh"]]
        return mask_secrets(document)

    def _deliver(self, document: Document, shown: Document, reason: VerdictReason, silent: float | None) -> None:
        wish = self._wish if reason == "end" else self._wish._replace(quiet=True)
        # A step's summary only grows: it gets the last verdict alone.
        rewritten = wish.output is not None and wish.kind != "github"
        if reason == "end" or rewritten or wish.kind in ("json", "ndjson"):
            if wish.kind == "text" and wish.output is None:
                if self._shown == _gist(shown):
                    self._end_unchanged(document, shown)
                    return
                self._print([self._headline(language.text("the end; the verdict on everything that was read:"))])
            output.deliver(document, wish)
            if reason != "end" and wish.output is not None:
                self._tell_in_brief(shown, reason, silent)
            return
        page = output.report_page(shown, wish)
        output.write_report(page, wish)
        if wish.kind not in _STREAMS:
            self._tell_in_brief(shown, reason, silent)
        elif reason == "first":
            self._print([self._headline(language.text("the verdict so far:"))])
            output.deliver(document, wish._replace(report=None))
            self._shown = _gist(shown)
        else:
            self._print(self._short(shown, reason, silent))
            self._shown = None

    def _end_unchanged(self, document: Document, shown: Document) -> None:
        """Say in a line that the verdict is the one that was printed in full, and write the report."""
        from nccl_triage.render import phrases

        told = language.text("the end; the verdict is still: {text}", text=phrases.headline(shown, self._wish.lang))
        self._print([self._headline(told)])
        output.write_report(output.report_page(shown, self._wish), self._wish)
        output.tell_of_report(document, self._wish)

    def _short(self, shown: Document, reason: VerdictReason, silent: float | None) -> list[str]:
        """Return what has changed, in a few lines."""
        from nccl_triage.render import phrases
        from nccl_triage.render import phrases as hangs

        lang = self._wish.lang
        if silent is not None:
            span = phrases.duration(silent, lang)
            return [self._headline(language.text("the job goes on; it was silent for {span}", span=span))]
        hang = shown["follow"]["hang"]
        if reason == "hang" and hang is not None:
            headline = self._headline(hangs.hang_sentence(hang, lang))
            return [headline, *(f"  {line}" for line in hangs.hang_lines(hang, lang))]
        best = shown["diagnoses"][0] if shown["verdict"] == "diagnosed" and shown["diagnoses"] else None
        details = phrases.cause_lines(best, lang) if best is not None else []
        known = phrases.headline(shown, lang)
        if reason == "first":
            told = f"{language.text('the verdict so far:')} {known}"
        else:
            told = language.text("the verdict has changed: {text}", text=known)
        return [self._headline(told), *(f"  {line}" for line in details)]

    def _tell_in_brief(self, shown: Document, reason: VerdictReason, silent: float | None) -> None:
        """Print on stderr a summary of what is in the file, or will be on stdout at the end."""
        for text in self._short(shown, reason, silent):
            text = text.removeprefix("nccl-triage: ")
            self._wish.say({"en": text, "zh": text})

    @staticmethod
    def _headline(text: str) -> str:
        # Name first and indented lines below: a log that contains our output is then not read as evidence.
        return f"nccl-triage: [{time.strftime('%H:%M:%S')}] {text}"

    def _print(self, lines: list[str]) -> None:
        output.write(
            ("\n".join(language.harmless(line) for line in lines) + "\n").encode("utf-8", "replace"), None, False
        )
