"""Output of a result: its options, and the function that delivers a document."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from nccl_triage import errors, messages
from nccl_triage.cli import language, links, options
from nccl_triage.render import FORMATS

if TYPE_CHECKING:
    from nccl_triage.render.text_page import Link

Document = dict[str, Any]
Say = Callable[[language.Said], None]


def output_options(function: Any) -> Any:
    """Add ``--format``, ``--output``, ``--report``, ``--open``, ``--force``, ``--redact``, ``--quiet`` and ``--verbose``."""
    file = click.Path(path_type=Path, dir_okay=False)
    for option in (
        click.option(
            "--verbose", "-v", count=True, help="Show all the evidence, and every contribution to the scores."
        ),
        click.option("--quiet", "-q", is_flag=True, help="Print nothing on stderr."),
        click.option(
            "--redact", is_flag=True, help="Replace host names, addresses, users and paths with stable pseudonyms."
        ),
        click.option("--force", is_flag=True, help="Overwrite existing files."),
        click.option("--report", type=file, help="Also write an HTML report to this file."),
        click.option(
            "--open",
            "opens",
            is_flag=True,
            help="Open the HTML report in a browser; without --report it is written to a temporary file.",
        ),
        click.option("--output", "-o", type=file, help="Write the result to this file."),
        click.option(
            "--format",
            "chosen",
            type=click.Choice(["auto", *FORMATS]),
            default="auto",
            show_default=True,
            help="Output format; auto goes by the suffix of --output, and is text without one.",
        ),
    ):
        function = option(function)
    return function


def exit_code_option(function: Any) -> Any:
    """Add ``--exit-code``."""
    text = "Exit with 0 if no failure was seen, 1 if a cause was found, 3 if the cause is unknown."
    return click.option("--exit-code", "want_code", is_flag=True, help=text)(function)


def format_of(chosen: str, output: Path | None) -> str:
    """Return the format's name; ``auto`` asks the longest suffix of the output's name that belongs to a format."""
    if chosen != "auto":
        return chosen
    name = output.name.lower() if output is not None else ""
    fits = [(len(end), key) for key, made in FORMATS.items() for end in made.suffixes if name.endswith(end)]
    return max(fits)[1] if fits else "text"


def exit_code(document: Document, wanted: bool) -> int:
    """Return the exit code of a diagnosis; without ``--exit-code`` every finding is a success."""
    if not wanted or document["verdict"] == "healthy":
        return errors.EXIT_OK
    if document["verdict"] == "unknown" and (document.get("outcome") or {}).get("state") in ("cut", "none"):
        return errors.EXIT_OK  # no failure was seen
    return errors.EXIT_CAUSE_FOUND if document["verdict"] == "diagnosed" else errors.EXIT_UNKNOWN_CAUSE


def teller(quiet: bool) -> Say:
    """Return a function that prints a line of progress or a note on stderr, and nothing when quiet."""

    def say(text: language.Said) -> None:
        if not quiet:
            language.say(text)

    return say


class OutputOptions(NamedTuple):
    """Where a result is written, and in which form."""

    kind: str
    output: Path | None
    report: Path | None
    force: bool
    redact: bool
    quiet: bool
    verbose: int
    lang: Literal["en", "zh"]
    #: The report that is opened in a browser at the end.
    opened: Path | None = None

    @property
    def reports(self) -> bool:
        """Tell whether an HTML report is made."""
        return self.report is not None or self.kind == "html"

    @property
    def shows_similar(self) -> bool:
        """Tell whether threads that look alike are shown for every failure, not only for one of unknown cause."""
        from nccl_triage.render import similar

        return similar.shows(self.kind, self.verbose, self.reports)

    @property
    def say(self) -> Say:
        """The function that prints a note on stderr."""
        return teller(self.quiet)

    def tell(self, template: str, **values: object) -> None:
        """Print a note in the user's language."""
        self.say(messages.fill(template, values, self.lang))


def wanted(given: dict[str, Any]) -> OutputOptions:
    """Return the OutputOptions among the values of ``output_options`` and ``--lang``.

    Raises UsageError, before any work is done, where files exist already or would overwrite each other.
    """
    output, report = given["output"], given["report"]
    if output is not None and report is not None and output.absolute() == report.absolute():
        raise errors.UsageError(
            "--output and --report name the same file {path}", path=output, remedy="give them different names"
        )
    options.refuse_existing((report, output), given["force"])
    kind = format_of(given["chosen"], output)
    opened = None
    if given.get("opens"):
        from nccl_triage.cli import browser

        opened = report or (output if kind == "html" else None)
        if opened is None:
            opened = report = browser.temporary_report()
    return OutputOptions(
        kind=kind,
        output=output,
        report=report,
        opened=opened,
        lang=options.language(given["lang"]),
        **{key: given[key] for key in ("force", "redact", "quiet", "verbose")},
    )


def deliver(document: Document, wish: OutputOptions) -> None:
    """Write the document to its outputs: files first, since the reader of standard output may leave early."""
    from nccl_triage.render import phrases, render

    shown = redacted(document) if wish.redact else document
    page = report_page(shown, wish)
    looks = wish.output is None and wish.kind == "text"
    data = render(
        shown,
        wish.kind,
        lang=wish.lang,
        color=looks and options.use_color(),
        width=options.width_of() if looks else None,
        verbose=wish.verbose,
        link=_links(shown) if looks else None,
    )
    write_report(page, wish)
    if wish.kind == "github":
        _add_summary(shown, wish)
    write(data, wish.output, wish.force)
    if wish.output is not None:
        wish.say(phrases.headline(shown, wish.lang))
        wish.tell("{kind} written to {path}", kind=wish.kind, path=wish.output)
    tell_of_report(document, wish)


def _links(shown: Document) -> Link | None:
    """Return what makes links of places in logs; those of a document with pseudonyms lead nowhere."""
    return None if shown.get("redaction") else links.for_terminal()


def open_report(wish: OutputOptions) -> None:
    """Open the report that was written, if ``--open`` asks for it."""
    if wish.opened is not None:
        from nccl_triage.cli import browser

        browser.open_page(wish.opened, wish)


def tell_of_report(document: Document, wish: OutputOptions) -> None:
    """Say where the HTML report lies, and whether its diagnosis was verified."""
    if wish.report is not None:
        told = _verification(document, wish.lang)
        wish.tell("report written to {path} ({verification})", path=wish.report, verification=told)


def report_page(shown: Document, wish: OutputOptions) -> bytes:
    """Return the HTML report of a document, nothing where none is wanted."""
    from nccl_triage.render import render

    return render(shown, "html", lang=wish.lang, verbose=wish.verbose) if wish.report else b""


def write_report(page: bytes, wish: OutputOptions) -> None:
    """Write the HTML report to its file."""
    if wish.report is not None:
        options.write_file(wish.report, page, wish.force)


def write(data: bytes, path: Path | None, force: bool) -> None:
    """Write a result to a file, or to standard output."""
    if path is not None:
        options.write_file(path, data, force)
        return
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _verification(document: Document, lang: Literal["en", "zh"]) -> str:
    """Return a short summary of a report's verification."""
    from nccl_triage.render import verification
    from nccl_triage.render.words import word

    if verification.needs_command(document):
        command = verification.verify_command(document)
        return f"{word('not_verified', lang)}; {word('confirm', lang)}: {command}"
    entries = verification.verified(document)
    if not entries:
        return messages.fill("nothing to verify", {}, lang)
    outcome = word(str(entries[0]["verification"].get("outcome")), lang)
    return f"{word('verification', lang).lower()}: {outcome}"


def redacted(document: Document) -> Document:
    """Return the document with pseudonyms; it passes through JSON first, so that a saved report gives the same ones."""
    import orjson

    from nccl_triage.redaction import redact
    from nccl_triage.render import json_output

    return redact(orjson.loads(json_output.render(document)))


def _add_summary(document: Document, wish: OutputOptions) -> None:
    """Append the report as Markdown to the summary of the GitHub step that runs us, as far as it has room for it."""
    from nccl_triage.render import github, render

    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    report = render(document, "markdown", lang=wish.lang, verbose=wish.verbose).decode()
    path = Path(name)
    try:
        size = path.stat().st_size if path.exists() else 0
        text = github.summary(report, max(github.SUMMARY_BYTES - size, 0), wish.lang)
        with path.open("ab") as stream:
            stream.write(text.encode())
    except OSError as error:
        wish.tell("no step summary: cannot write {path}: {why}", path=name, why=error.strerror or error)
