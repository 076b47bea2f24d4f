"""What would have helped in labelled cases: judged from the labels, as the ids of the fixes that count as that.

A line of the table has ``id`` (name of the folder and id of the case), ``helps`` and ``harms`` (globs over the ids of fixes
in report documents) and ``restart`` (decisions that are right). The line ``*`` has what does harm in every case that it
does not help.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import orjson

from nccl_triage.errors import InputError

#: The line whose ``harms`` hold in every case.
EVERY = "*"


@dataclass(frozen=True, slots=True)
class JudgedAdvice:
    """What helps in a case, what does harm, and which decisions about a restart are right."""

    helps: tuple[str, ...] = ()
    harms: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()

    def helpful(self, repair: str) -> bool:
        """Tell whether a fix is what helps."""
        return _any(repair, self.helps)

    def harmful(self, repair: str) -> bool:
        """Tell whether a fix does harm."""
        return _any(repair, self.harms) and not self.helpful(repair)


def _any(repair: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(repair, glob) for glob in globs)


def read(path: Path) -> dict[str, JudgedAdvice]:
    """Return what was judged for each case; raises InputError for a table that is damaged."""
    rows: dict[str, dict[str, list[str]]] = {}
    try:
        for line in path.read_bytes().splitlines():
            row = orjson.loads(line)
            rows[row.pop("id")] = row
    except (OSError, orjson.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
        raise InputError("{path} is no table of judged advice: {error}", path=path, error=error) from None
    harms = rows.pop(EVERY, {}).get("harms", [])
    return {
        name: JudgedAdvice(tuple(row.get("helps", ())), (*row.get("harms", ()), *harms), tuple(row.get("restart", ())))
        for name, row in rows.items()
    }
