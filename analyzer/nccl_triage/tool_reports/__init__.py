"""Documents and dumps of other programs, turned into lines when they are opened.

A module here defines the reports that it reads in ``REPORTS``; there is no list to keep. Their lines are found, matched
and quoted like those of any log, so that everything behind, signatures first, knows of one kind of source only.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from nccl_triage.observations.store import SourceInfo

#: First bytes of a file, unpacked, by which it is recognised.
SAMPLE = 8192


def _none(name: str) -> bool:
    return False


class ToolReport(NamedTuple):
    """A kind of document that is turned into lines.

    ``recognises`` is asked with the name of the file, without folders and the ending of a compression, and its first
    bytes (``SAMPLE`` at most; "<stdin>" is the name of a pipe). ``render`` makes lines of the whole, of at most
    ``max_size`` bytes; it adds problems to ``info.problems``, and may add what the document says of its writer (rank,
    host, pid) to ``info``. It returns None for another document after all, which is then read as text if it
    ``is_text``, and left out otherwise, as is what is larger. ``wants`` names files that are worth a look although
    their endings are not those of logs; what is ``only_named`` is left alone in folders, which hold data of that form.
    What is ``general`` is recognised by its form alone, so the others are asked first.
    """

    name: str
    max_size: int
    recognises: Callable[[str, bytes], bool]
    render: Callable[[bytes, SourceInfo], bytes | None]
    is_text: bool = True
    wants: Callable[[str], bool] = _none
    only_named: bool = False
    general: bool = False


@cache
def every() -> tuple[ToolReport, ...]:
    """Return all kinds of reports, in the order in which they are asked."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    reports = [report for module in modules for report in getattr(module, "REPORTS", ())]
    return tuple(sorted(reports, key=lambda report: (report.general, report.name)))


def recognise(name: str, sample: bytes) -> ToolReport | None:
    """Return the kind of report that a file of this name (without folders) and these first bytes is, or None."""
    return next((report for report in every() if report.recognises(name, sample)), None)


def wants(name: str) -> bool:
    """Tell whether a file of this name is worth a look although such names are not those of logs."""
    return any(report.wants(name) for report in every())
