"""Every error that a user may see: exit code, what happened, the likely cause, what to try.

TriageError
├── UsageError          2   the command line or the input cannot be used
│   ├── InputError      2   nothing readable among the inputs
│   ├── OutputError     2   the result cannot be written
│   └── HistoryError    2   the history cannot be read or written
└── RuleError           2   a rule file is wrong (carries file:line); RuleErrors: several of them
"""

from __future__ import annotations

from collections.abc import Sequence

from nccl_triage import messages

EXIT_OK = 0
EXIT_CAUSE_FOUND = 1
EXIT_USAGE = 2
EXIT_UNKNOWN_CAUSE = 3
EXIT_CONTRADICTED = 4
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141


class TriageError(Exception):
    """Base of the errors that are shown to a user as three lines: error, cause, try."""

    exit_code = EXIT_USAGE

    def __init__(self, message: str, *, cause: str | None = None, remedy: str | None = None, **values: object) -> None:
        """Take the texts as templates: ``UsageError("{path} already exists", path=path)``.

        The template, not the finished text, is what ``messages`` translates. Without values a text stands as it is.
        """
        self.texts = (message, cause, remedy)
        self.values = values
        self.message, self.cause, self.remedy = self.in_language("en")
        super().__init__(self.message)

    def in_language(self, lang: str) -> tuple[str, str | None, str | None]:
        """Return message, cause and remedy in ``en`` or ``zh``; what has no translation stays English."""
        message, cause, remedy = (
            None if text is None else messages.fill(text, self.values, lang) for text in self.texts
        )
        return message or "", cause, remedy

    def lines(self, lang: str = "en") -> list[str]:
        """Return what to print on stderr, one line an entry."""
        message, cause, remedy = self.in_language(lang)
        out = [f"{messages.fill('error', {}, lang)}: {message}"]
        if cause:
            out.append(f"{messages.fill('cause', {}, lang)}: {cause}")
        if remedy:
            out.append(f"{messages.fill('try', {}, lang)}: {remedy}")
        return out


class UsageError(TriageError):
    """The command line cannot be carried out as given."""


class InputError(UsageError):
    """No input could be read."""


class OutputError(UsageError):
    """The result could not be written where it was asked to go."""


class HistoryError(UsageError):
    """The history of diagnoses cannot be read or written; ``busy``: others write to it."""

    busy = False


class RuleError(TriageError):
    """A rule file is wrong; ``where`` is ``path:line`` of the definition."""

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        cause: str | None = None,
        remedy: str | None = None,
        **values: object,
    ) -> None:
        self.where = where
        super().__init__(message, cause=cause, remedy=remedy, **values)

    def in_language(self, lang: str) -> tuple[str, str | None, str | None]:
        """Return message (after its ``path:line``), cause and remedy."""
        message, cause, remedy = super().in_language(lang)
        return (f"{self.where}: {message}" if self.where else message), cause, remedy


class RuleErrors(RuleError):
    """All that is wrong with some rule files: what it says of the first of them, and ``others``."""

    def __init__(self, errors: Sequence[RuleError]) -> None:
        self.errors: list[RuleError] = []
        for error in errors:
            self.errors += error.errors if isinstance(error, RuleErrors) else [error]
        first = self.errors[0]
        message, cause, remedy = first.texts
        super().__init__(message, where=first.where, cause=cause, remedy=remedy, **first.values)

    def lines(self, lang: str = "en") -> list[str]:
        """Return the lines of every error."""
        return [line for error in self.errors for line in error.lines(lang)]
