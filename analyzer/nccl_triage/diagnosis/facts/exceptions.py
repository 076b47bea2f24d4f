"""Python exceptions: the first one that the application itself caused, and those that only report a broken peer."""

from __future__ import annotations

import sys

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.lazy_regex import lazily
from nccl_triage.parsers.traceback_lines import checkout_of
from nccl_triage.parsers.tracebacks import TRACEBACK
from nccl_triage.story.exceptions import (
    LOGGED,
    LONE,
    application_exceptions,
    exceptions_of,
    is_communication,
    is_launcher,
    kind_of,
    message_of,
)

#: Modules of Python that a sound installation may lack: removed in 3.12 and 3.13, of one system only, or optional.
_MAY_LACK = frozenset(
    [
        "aifc",
        "asynchat",
        "asyncore",
        "audioop",
        "cgi",
        "cgitb",
        "chunk",
        "crypt",
        "curses",
        "dbm",
        "distutils",
        "ensurepip",
        "fcntl",
        "grp",
        "idlelib",
        "imghdr",
        "imp",
        "lib2to3",
        "mailcap",
        "msilib",
        "msvcrt",
        "nis",
        "nntplib",
        "nt",
        "ossaudiodev",
        "pipes",
        "posix",
        "pty",
        "pwd",
        "readline",
        "resource",
        "smtpd",
        "sndhdr",
        "spwd",
        "sqlite3",
        "sunau",
        "syslog",
        "telnetlib",
        "termios",
        "tkinter",
        "tty",
        "turtle",
        "uu",
        "venv",
        "winreg",
        "winsound",
        "xdrlib",
    ]
)
_NUMBER = lazily(r"\d{1,7}")


@fact("exception.application", "the type of the first exception that is an application's own, not a victim's")
def _first(case: Case) -> Fact | None:
    found = application_exceptions(case)
    if not found:
        return None
    return Fact(kind_of(found[0]), [found[0]])


@fact("exception.message", "the message of the first application exception")
def _message(case: Case) -> Fact | None:
    found = application_exceptions(case)
    return Fact(message_of(found[0]), [found[0]]) if found else None


@fact("exception.ranks", "the ranks that raised an application exception, the first one first")
def _ranks(case: Case) -> Fact | None:
    found = application_exceptions(case)
    ranks = list(dict.fromkeys(r for e in found if (r := case.rank(e)) is not None))
    return Fact(ranks, found[:3]) if found else None


@fact("exception.one_rank", "exactly one rank raised an application exception while others failed or waited")
def _one_rank(case: Case) -> Fact | None:
    found = application_exceptions(case)
    ranks = {r for e in found if (r := case.rank(e)) is not None}
    others = {r for e in case.events if e.role == "cascade" and (r := case.rank(e)) is not None} - ranks
    return Fact(len(ranks) == 1 and bool(others), found[:1]) if found else None


@fact("exception.all_ranks", "every rank with output raised the same application exception")
def _all_ranks(case: Case) -> Fact | None:
    found = application_exceptions(case)
    if not found:
        return None
    first = kind_of(found[0])
    ranks = {r for e in found if kind_of(e) == first and (r := case.rank(e)) is not None}
    known = set(case.identity.ranks)
    return Fact(len(ranks) > 1 and ranks >= known, found[:2])


@fact("exception.without_end", "a Python traceback or part of one comes after all progress, and no exception follows")
def _without_end(case: Case) -> Fact | None:
    found = case.having("exception.frame", language="python")
    if not found or exceptions_of(case):
        return None
    last = max((case.position(e) for e in case.events if e.role == "progress"), default=-1)
    after = [event for event in found if case.position(event) > last]
    return Fact(True, after[:2]) if after else None


@fact(
    "exception.checkpoint_ranks",
    "the ranks in which reading or writing a distributed checkpoint failed, if not all",
    blames=("named in the checkpoint exception", "检查点异常点名了它"),
)
def _checkpoint_ranks(case: Case) -> Fact | None:
    found = case.having("exception", "ranks", about="checkpoint")
    ranks = sorted({int(number) for event in found for number in _NUMBER.findall(event.fields["ranks"])})
    return Fact(ranks, found[:2]) if ranks and set(case.identity.ranks) - set(ranks) else None


@fact("exception.user_frame", "the innermost frame of the user's own code in the first application exception")
def _frame(case: Case) -> Fact | None:
    for event in application_exceptions(case)[:1]:
        frames = event.fields.get("user_frames")
        if frames:
            return Fact(frames.splitlines()[-1], [event])
    return None


@fact(
    "exception.inside", "the package inside which the first application exception was raised, no user's code above it"
)
def _inside(case: Case) -> Fact | None:
    return _field_of_first(case, "inside")


@fact("exception.checkout", "the framework in whose checkout the innermost frame of the user's code stands")
def _checkout(case: Case) -> Fact | None:
    for event in application_exceptions(case)[:1]:
        framework = checkout_of(event.fields.get("user_frames", "").rpartition("\n")[2])
        if framework is not None:
            return Fact(framework, [event])
    return None


@fact("exception.missing_standard_module", "a module of Python's standard library that could not be imported")
def _missing_standard_module(case: Case) -> Fact | None:
    for event in case.having("library.missing", "name"):
        top = event.fields["name"].partition(".")[0]
        # Those with an underscore need libraries of the system, which Python may have been built without.
        if top in sys.stdlib_module_names and not top.startswith("_") and top not in _MAY_LACK:
            return Fact(top, [event])
    return None


@fact("exception.raised_in", "file and function in which the first application exception was raised, library code too")
def _raised_in(case: Case) -> Fact | None:
    return _field_of_first(case, "raised_in")


def _field_of_first(case: Case, name: str) -> Fact | None:
    """Return what a field of the first application exception says, if it has it."""
    return next(
        (Fact(event.fields[name], [event]) for event in application_exceptions(case)[:1] if event.fields.get(name)),
        None,
    )


@fact("exception.while_loading", "the first application exception was raised while a batch of data was fetched")
def _while_loading(case: Case) -> Fact | None:
    return next((Fact(True, [event]) for event in application_exceptions(case)[:1] if "loading" in event.fields), None)


@fact("exception.frames", "file names and functions of the user's frames in any exception, as one text")
def _frames(case: Case) -> Fact | None:
    found = [e for e in exceptions_of(case) if e.fields.get("user_frames")]
    return Fact("\n".join(e.fields["user_frames"] for e in found), found[:2]) if found else None


@fact("exception.communication_only", "all exceptions report broken communication only")
def _communication_only(case: Case) -> Fact | None:
    found = [e for e in exceptions_of(case) if not is_launcher(e)]
    return Fact(all(is_communication(e) for e in found), found[:2]) if found else None


@fact("exception.before_cascade", "an application exception precedes every symptom of another rank")
def _before(case: Case) -> Fact | None:
    found = application_exceptions(case)
    if not found or not case.order_known:
        return None
    rank = case.rank(found[0])
    cascade = [e for e in case.events if e.role == "cascade" and e.signature not in (TRACEBACK, LONE, *LOGGED) and e.kind != "exception.frame"
               and (case.rank(e) != rank or rank is None)]  # fmt: skip
    first = min((case.position(e) for e in cascade), default=len(case.events) + 1)
    return Fact(case.position(found[0]) < first, found[:1])
