"""Several jobs in one input: the options that part and join them, and the table that is delivered."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_triage import errors
from nccl_triage.cli import options, output
from nccl_triage.errors import UsageError
from nccl_triage.lazy_regex import lazily

if TYPE_CHECKING:
    from nccl_triage.api import Jobs
    from nccl_triage.execution.jobs import Grouping, ScannedJobs
    from nccl_triage.history.memory import Memory
    from nccl_triage.redaction.document import SessionRedactor

#: What may stand in the name of a page, and how many characters of a job's name.
_UNFIT, _NAME = lazily(r"[^A-Za-z0-9._-]+"), 60


def grouping_options(function: Any) -> Any:
    """Add ``--one-job`` and ``--each``."""
    for option in (
        click.option(
            "--each",
            is_flag=True,
            help="Logs that are not surely of one job are jobs of their own.",
        ),
        click.option("--one-job", is_flag=True, help="All logs are of one job, whatever their names and contents say."),
    ):
        function = option(function)
    return function


def grouping(given: dict[str, Any], refused: str | None) -> Grouping | None:
    """Take the options out of ``given``; return what they choose, None where ``refused`` reads one job only."""
    from nccl_triage.execution.jobs import Grouping

    one_job, each = given.pop("one_job"), given.pop("each")
    if one_job and each:
        raise UsageError("--one-job and --each contradict each other", remedy="give one of them")
    if refused is not None:
        if each:
            raise UsageError("--each cannot be combined with {option}", option=refused, remedy="leave one of them out")
        return None
    return Grouping.ONE if one_job else Grouping.EACH if each else Grouping.BY_TRAITS


def tell_of_missing(paths: tuple[str, ...], wish: output.OutputOptions) -> None:
    """Say which of several paths name nothing."""
    from nccl_triage.ingest.sources import missing

    for path in missing(paths):
        wish.tell("cannot read {path}: there is no such file", path=path)


def tell_of_grouping(scanned: ScannedJobs, several: bool, wish: output.OutputOptions) -> None:
    """Say how logs were taken that are not surely of one job; ``several`` were named."""
    number = len(scanned.jobs)
    if scanned.parted and number > 1:
        wish.tell(
            "read as {number} jobs, by what the logs say and are called; --one-job reads them as one", number=number
        )
    elif scanned.joined and number == 1 and several:
        wish.tell("read as the logs of one job; --each reads as jobs of their own what is not surely of one")


def refuse_other_formats(wish: output.OutputOptions) -> None:
    """Raise UsageError for a format that holds one job."""
    from nccl_triage.render.job_table import FORMATS

    if wish.kind not in FORMATS:
        raise UsageError(
            "there are several jobs, and {format} holds one",
            format=wish.kind,
            remedy="add --one-job, or one of the formats {names}",
            names=", ".join(FORMATS),
        )


class JobTableWriter:
    """The documents of several jobs, which become rows, pages and lines one by one."""

    def __init__(self, wish: output.OutputOptions) -> None:
        refuse_other_formats(wish)
        self._wish = wish
        self._session: SessionRedactor | None = None
        self._rows: list[dict[str, Any]] = []
        self._lines: list[bytes] = []
        self._index = wish.report or (wish.output if wish.kind == "html" else None)
        self._pages = None if self._index is None else self._index.with_name(f"{self._index.stem}-jobs")
        if wish.kind == "html" and self._index is None:
            raise UsageError("a page of several jobs needs a file", remedy="give --report FILE")
        if self._pages is not None:
            options.refuse_existing([self._pages], wish.force)

    def add(self, name: str, document: output.Document) -> None:
        """Take the document of a job."""
        from nccl_triage.document.job_table import row
        from nccl_triage.render import render

        number, wish = len(self._rows) + 1, self._wish
        shown = self._redacted(document) if wish.redact else document
        made = row(f"job-{number}" if wish.redact else name, shown)
        if self._pages is not None:
            page = f"{number:03d}-{_UNFIT.sub('-', made['job'])[:_NAME].strip('.-') or 'job'}.html"
            self._write(self._pages / page, render(shown, "html", lang=wish.lang, verbose=wish.verbose))
            made["report"] = f"{_UNFIT.sub('-', self._pages.name)}/{page}"
        if wish.kind == "ndjson":
            self._lines.append(render(shown, "ndjson"))
        self._rows.append(made)

    def deliver(self, notes: list[str]) -> dict[str, Any]:
        """Write the table; files first, since the reader of standard output may leave early. Returns it."""
        from nccl_triage import messages
        from nccl_triage.document.job_table import table
        from nccl_triage.redaction.secrets import mask_secrets
        from nccl_triage.render import RenderOptions, job_table

        wish = self._wish
        told = [] if wish.redact else [{"en": note, "zh": messages.translated_text(note)} for note in notes]
        made: dict[str, Any] = mask_secrets(table(self._rows, told))
        looks = wish.output is None and wish.kind == "text"
        view = RenderOptions(
            wish.lang,
            looks and options.use_color(),
            options.width_of() if looks else None,
            wish.verbose,
            None,
        )
        if self._index is not None:
            from nccl_triage.render import job_page

            options.write_file(self._index, job_page.render(made, wish.lang).encode("utf-8", "replace"), wish.force)
        made_by = {
            "text": job_table.text,
            "json": job_table.json,
            "csv": job_table.csv_text,
            "markdown": job_table.markdown,
        }
        if wish.kind == "ndjson":
            data = b"".join(self._lines)
        else:
            data = made_by.get(wish.kind, job_table.text)(made, view).encode("utf-8", "replace")
        if wish.kind != "html":
            output.write(data, wish.output, wish.force)
        if wish.output is not None:
            wish.say(job_table.counts(made, wish.lang))
        if self._index is not None:
            wish.tell(
                "report written to {path}, with a page for each job in {folder}", path=self._index, folder=self._pages
            )
        return made

    def _redacted(self, document: output.Document) -> output.Document:
        import orjson

        from nccl_triage.redaction.document import SessionRedactor
        from nccl_triage.render import json_output

        if self._session is None:
            self._session = SessionRedactor()
        return self._session.redact(orjson.loads(json_output.render(document)))

    def _write(self, path: Path, data: bytes) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise errors.OutputError(
                "cannot write {path}", cause="{why}", path=path.parent, why=error.strerror or error
            ) from None
        options.write_file(path, data, self._wish.force)


def run(found: Jobs, wish: output.OutputOptions, memory: Memory, want_code: bool) -> int:
    """Diagnose the jobs, deliver their table and return the exit code: that of the worst of them."""
    made, codes = JobTableWriter(wish), {errors.EXIT_OK}
    kept: list[tuple[Memory, output.Document]] = []
    for name, diagnosis in found:
        document = diagnosis.to_dict(diagnosis.verdict == "unknown" or wish.shows_similar)
        made.add(name, document)
        kept.append((copy.copy(memory), document))  # what it knows of the logs is that of the last one
        codes.add(output.exit_code(document, want_code))
    made.deliver(found.scanned.notes)
    output.open_report(wish)
    for of_job, document in kept:  # none of them was before another
        of_job.keep(document)
    return next(code for code in (errors.EXIT_CAUSE_FOUND, errors.EXIT_UNKNOWN_CAUSE, errors.EXIT_OK) if code in codes)
