"""Lists of hosts as Slurm writes them: ``gpu-[001-003,007]``."""

from __future__ import annotations

import re

from nccl_triage.lazy_regex import lazily

_LIST = lazily(r"(?P<before>[^\[\]]*)\[(?P<ranges>[0-9][0-9,-]*)\](?P<after>[^\[\]]*)")
_RANGE = lazily(r"(\d{1,9})(?:-(\d{1,9}))?")
_NUMBERED = lazily(r"(\D*)(0|[1-9]\d*)(|\D.*)")
#: Hosts of one list at most; a longer one becomes a list of its ends.
_MOST = 8192


def hosts_of(text: str) -> list[str] | None:
    """Return the hosts of a list, in its order, or None when it is none."""
    match = _LIST.fullmatch(text)
    if match is None:
        return None
    found: list[str] = []
    for part in match["ranges"].split(","):
        span = _RANGE.fullmatch(part)
        if span is None:
            return None
        first, last = int(span[1]), int(span[2] or span[1])
        if last < first or last - first >= _MOST or len(found) >= _MOST:
            return None
        found += [f"{match['before']}{n:0{len(span[1])}d}{match['after']}" for n in range(first, last + 1)]
    return found


def is_likely(text: str) -> bool:
    """Tell whether brackets hold numbers of hosts rather than the index of a list: padded, or after a hyphen."""
    match = _LIST.fullmatch(text)
    return match is not None and bool(match["before"].endswith("-") or re.match(r"0\d", match["ranges"]))


def shortened(hosts: list[str]) -> str:
    """Return hosts as a list: ``host-[1-3,7]``; names that have no number in common stand side by side."""
    parts: list[tuple[str, str, list[list[int]]]] = []
    for host in hosts:
        match = _NUMBERED.fullmatch(host)
        if match is None:
            parts.append((host, "", []))
            continue
        number = int(match[2])
        if parts and parts[-1][:2] == (match[1], match[3]) and parts[-1][2]:
            runs = parts[-1][2]
            if runs[-1][1] + 1 == number:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        else:
            parts.append((match[1], match[3], [[number, number]]))
    return ",".join(_written(*part) for part in parts)


def _written(before: str, after: str, runs: list[list[int]]) -> str:
    if not runs:
        return before
    listed = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"{before}[{listed}]{after}" if len(runs) > 1 or "-" in listed else f"{before}{listed}{after}"
