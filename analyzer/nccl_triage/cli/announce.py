"""Say the verdicts of a job that is followed: on stdout, in the report, to the command of ``--on-verdict``.

As text the whole verdict stands at the beginning and at the end, and what changes in between is a few lines; as JSON
every verdict is a document. Formats that make one page are written once, at the end, or again and again to a file.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from nccl_triage import errors
from nccl_triage.cli import language, on_verdict, output
from nccl_triage.cli.on_verdict import Hook
from nccl_triage.cli.output import Document, Wanted
from nccl_triage.cli.progress import StatusLine
from nccl_triage.diagnosis.updates import Reason
from nccl_triage.document.hang import stamp

#: Formats of which one can be written behind the other.
_STREAMS = ("text", "json", "ndjson")


class Announcer:
    """Delivers verdicts; what cannot be written before the end is told, and following goes on."""

    def __init__(self, wish: Wanted, hook: Hook | None, line: StatusLine) -> None:
        self._wish = wish
        self._hook = hook
        self._line = line
        self._number = 0

    def say(
        self, found: Document, reason: Reason, hang: dict[str, Any] | None, silent: float | None = None
    ) -> Document:
        """Deliver a verdict and return its document; ``silent``: for so many seconds a hang was suspected, wrongly."""
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

            self._hook.call(render(shown, "json", lang=self._wish.lang), on_verdict.variables(shown))
        # The files are ours from now on.
        self._wish = replace(self._wish, force=True)
        return document

    def _document(self, found: Document, reason: Reason, hang: dict[str, Any] | None) -> Document:
        from nccl_triage.redaction.secrets import mask_secrets

        follow = {"reason": reason, "number": self._number, "time": stamp(time.time()), "hang": hang}
        document = {**found, "follow": follow}
        if hang is not None:
            from nccl_triage.render import phrases as hangs

            note = hangs.hang_note(hang)
            document["notes"] = [*found["notes"], note["en"]]
            document["notes_zh"] = [*found["notes_zh"], note["zh"]]
        return mask_secrets(document)

    def _deliver(self, document: Document, shown: Document, reason: Reason, silent: float | None) -> None:
        wish = self._wish if reason == "end" else replace(self._wish, quiet=True)
        # A step's summary only grows: it gets the last verdict alone.
        rewritten = wish.output is not None and wish.kind != "github"
        if reason == "end" or rewritten or wish.kind in ("json", "ndjson"):
            if wish.kind == "text" and wish.output is None:
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
            output.deliver(document, replace(wish, report=None))
        else:
            self._print(self._short(shown, reason, silent))

    def _short(self, shown: Document, reason: Reason, silent: float | None) -> list[str]:
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

    def _tell_in_brief(self, shown: Document, reason: Reason, silent: float | None) -> None:
        """Say on stderr what stands in the file, or will stand on stdout at the end."""
        for text in self._short(shown, reason, silent):
            text = text.removeprefix("nccl-triage: ")
            self._wish.say({"en": text, "zh": text})

    @staticmethod
    def _headline(text: str) -> str:
        # Name first and indented lines below it: so a log that our output ends up in is not read as evidence.
        return f"nccl-triage: [{time.strftime('%H:%M:%S')}] {text}"

    def _print(self, lines: list[str]) -> None:
        output.write(
            ("\n".join(language.harmless(line) for line in lines) + "\n").encode("utf-8", "replace"), None, False
        )
