"""Every error that a user may see: exit code, what happened, the likely cause, what to try.

TriageError
├── UsageError          2   the command line or the input cannot be used
│   ├── InputError      2   nothing readable among the inputs
│   └── OutputError     2   the result cannot be written
└── RuleError           2   a rule file is wrong (carries file:line)
"""

from __future__ import annotations

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

    def __init__(self, message: str, *, cause: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.remedy = remedy

    def lines(self) -> list[str]:
        """Return what to print on stderr, one line an entry."""
        out = [f"error: {self.message}"]
        if self.cause:
            out.append(f"cause: {self.cause}")
        if self.remedy:
            out.append(f"try: {self.remedy}")
        return out


class UsageError(TriageError):
    """The command line cannot be carried out as given."""


class InputError(UsageError):
    """No input could be read."""


class OutputError(UsageError):
    """The result could not be written where it was asked to go."""


class RuleError(TriageError):
    """A rule file is wrong; ``where`` is ``path:line`` of the definition."""

    def __init__(
        self, message: str, *, where: str | None = None, cause: str | None = None, remedy: str | None = None
    ) -> None:
        super().__init__(f"{where}: {message}" if where else message, cause=cause, remedy=remedy)
        self.where = where
