"""The hosts that failed, as schedulers want them: a Slurm node list, a hostfile without them, a plain list.

Names of hosts come from logs, and a list of them is pasted into a shell: what is no plain name of a host is never written.
"""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Collection, Iterable

from nccl_triage.lazy_regex import lazily

#: A name of a host, or an IPv4 address: nothing that a shell, Slurm or a hostfile would read as something else.
_PLAIN = lazily(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", re.ASCII)
_NUMBERED = lazily(r"(?P<stem>.*?)(?P<number>[0-9]{1,12})", re.ASCII)
#: The first word of a hostfile's line: ``user@host:slots``, of which user and slots are not always there.
_ENTRY = lazily(r"\s*(?:[^\s#@]+@)?(?P<host>[^\s#:]+)")


def plain(hosts: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the hosts whose names can be written, and those whose names cannot; both sorted, each once."""
    every = sorted(set(hosts))
    fit = [host for host in every if _PLAIN.fullmatch(host)]
    return fit, [host for host in every if not _PLAIN.fullmatch(host)]


def slurm(hosts: Iterable[str]) -> tuple[str, list[str]]:
    """Return a Slurm node list such as ``gpu[03,07-09],login1``, and the hosts that no node is named after.

    Slurm knows a node by the short name of its host; an address is no name.
    """
    fit, unfit = plain(hosts)
    unfit += [host for host in fit if _is_address(host)]
    stems: dict[str, set[str]] = defaultdict(set)
    for name in {host.partition(".")[0] for host in fit if not _is_address(host)}:
        numbered = _NUMBERED.fullmatch(name)
        stems[numbered["stem"] if numbered else name].add(numbered["number"] if numbered else "")
    parts = [part for stem in sorted(stems) for part in _nodes(stem, stems[stem])]
    return ",".join(parts), unfit


def _nodes(stem: str, numbers: set[str]) -> list[str]:
    """Return the nodes of one stem: the one without a number, and the numbered ones in brackets."""
    found = [stem] if "" in numbers else []
    ordered = sorted(numbers - {""}, key=lambda text: (len(text), int(text)))
    if len(ordered) == 1:
        return [*found, stem + ordered[0]]
    ranges: list[list[str]] = []
    for text in ordered:
        last = ranges[-1][-1] if ranges else ""
        if last and len(last) == len(text) and int(text) == int(last) + 1:
            ranges[-1].append(text)
        else:
            ranges.append([text])
    shown = [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in ranges]
    return [*found, f"{stem}[{','.join(shown)}]"] if shown else found


def hostfile(text: str, hosts: Collection[str]) -> tuple[str, int]:
    """Return a hostfile without the lines of these hosts, and how many went; all other lines stay as they are."""
    bad = {host.lower() for host in hosts}
    short = {host.partition(".")[0] for host in bad if not _is_address(host)}
    kept, gone = [], 0
    for line in text.splitlines(keepends=True):
        entry = _ENTRY.match(line)
        if entry and _named(entry["host"].lower(), bad, short):
            gone += 1
        else:
            kept.append(line)
    return "".join(kept), gone


def names(text: str) -> list[str]:
    """Return the hosts that a hostfile lists."""
    return [entry["host"] for line in text.splitlines() if (entry := _ENTRY.match(line))]


def _named(host: str, bad: Collection[str], short: Collection[str]) -> bool:
    """Tell whether a host is among those; one of two names may lack the domain."""
    if host in bad or _is_address(host):
        return host in bad
    return host in short if "." not in host else host.partition(".")[0] in {name for name in bad if "." not in name}


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
