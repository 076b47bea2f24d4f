"""What the path of a log says about who wrote it: rank, host, pid, attempt, stream, job.

The layouts are those of ``rules/layouts``: the first that fits names the layout of a path, the details then fill fields
that it left open. A wrong rank is worse than none: a number that may be a job, a step, a restart or a run is no rank, and
where only the other files of the folder can tell, a layout has a condition that asks them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from nccl_triage.engine.path_layouts import DIGIT, NUMBERS, LayoutRule, LayoutRules
from nccl_triage.engine.pattern import Pattern
from nccl_triage.ingest.layout_conditions import BY_SIBLINGS, WHEN, Searcher, Siblings, strip_compression
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.store import SourceInfo

#: Path components looked at: torchrun's layout needs four, with folders of its run and its node above.
DEPTH = 6
#: The layout of Ray's daemons that only watch a cluster: no job needs them.
RAY_HELPER = "ray-helper"
_STREAMS = {"out": "stdout", "err": "stderr"}


def _searcher(pattern: Pattern) -> Searcher:
    """Return what searches for a pattern: that of a user is limited in time."""
    return pattern if pattern.user else lazily(pattern.source)


class PathLayout:
    """A layout, or a detail, in the form in which it is tried."""

    def __init__(self, rule: LayoutRule) -> None:
        self.id, self.layout = rule.id, rule.layout
        self._needs = rule.needs
        #: Whether what the names of other files are like decides.
        self.guesses = rule.when in BY_SIBLINGS
        self._pattern = _searcher(rule.pattern)
        self._when = WHEN[rule.when] if rule.when is not None else None

    def search(self, path: str, siblings: Siblings) -> re.Match[str] | None:
        """Return the match if the layout holds for the path."""
        if self._needs == DIGIT:
            if not any(letter.isdigit() for letter in path):
                return None
        elif self._needs not in path.lower():
            return None
        match = self._pattern.search(path)
        if match is None or (self._when is not None and not self._when(self._pattern, match, siblings)):
            return None
        return match


class LayoutReader:
    """Reads paths by one set of rules."""

    def __init__(self, rules: LayoutRules) -> None:
        # A user's own layout comes first: it is there because the shipped ones misread a path, or do not read it.
        rows = [PathLayout(rule) for rule in sorted(rules.rows.values(), key=lambda rule: not rule.user)]
        self._layouts = [row for row in rows if row.layout is not None]
        self._details = [row for row in rows if row.layout is None]

    def read(self, path: str, siblings: Siblings | None = None) -> SourceInfo:
        """Return what a path (slashes between its parts) says; ``siblings`` are the files of the same folder."""
        return self.told(path, siblings)[0]

    def told(self, path: str, siblings: Siblings | None = None) -> tuple[SourceInfo, list[str]]:
        """Return what a path says, and the ids of the layout and the details that say it."""
        info = SourceInfo(path=path)
        text = strip_compression("/".join(path.split("/")[-DEPTH:]))
        siblings = siblings or Siblings()
        by: list[str] = []
        for row in self._layouts:
            match = row.search(text, siblings)
            if match:
                info.layout, info.guessed = row.layout, row.guesses
                _fill(info, match.groupdict())
                by.append(row.id)
                break
        for row in self._details:
            match = row.search(text, siblings)
            if match:
                _fill(info, match.groupdict())
                by.append(row.id)
        return info, by


def _fill(info: SourceInfo, fields: dict[str, str | None]) -> None:
    for name, value in fields.items():
        if value is None or name in ("before", "after"):
            continue
        if name.startswith("stream"):
            info.stream = info.stream or _STREAMS.get(value.lower(), value.lower())
        elif getattr(info, name) is None:
            setattr(info, name, int(value) if name in NUMBERS else value)


def settle(infos: Sequence[SourceInfo]) -> None:
    """Take back what only a look at all sources shows to be wrong.

    The same rank on two hosts is a local rank (``node0_rank3``, ``node1_rank3``). Slurm's task number is the
    rank when every GPU has a task; with one task on each of several hosts it may be the node's number.
    """
    hosts: dict[tuple[object, ...], set[str]] = {}
    tasks: Counter[str] = Counter()
    seen: set[tuple[str, int]] = set()
    for info in infos:
        if info.rank is None or info.host is None:
            continue
        hosts.setdefault((info.layout, info.rank, info.stream, info.attempt), set()).add(info.host)
        if info.layout == "slurm" and (info.host, info.rank) not in seen:
            seen.add((info.host, info.rank))
            tasks[info.host] += 1
    repeated = {key[0] for key, names in hosts.items() if len(names) > 1}
    single = len(tasks) > 1 and max(tasks.values()) == 1
    for info in infos:
        if info.rank is None or info.host is None:
            continue
        if info.layout in repeated:
            info.local_rank, info.rank = info.rank, None
        elif info.layout == "slurm" and single:
            info.rank = None
