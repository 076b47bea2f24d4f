"""The verification as the report's page shows it: rows, matrix and marks, ready to be printed."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.render import bandwidth_chart, experiments
from nccl_triage.render.bandwidth_chart import Chart
from nccl_triage.render.experiments import POOR, REACHABLE, Item, figure
from nccl_triage.render.shapes import shape
from nccl_triage.render.words import Document, Lang, Pair, listed, pick, word

#: Outcome of an experiment, of a run, state of a path -> shape and tone; what is unknown gets ``_OTHER``.
MARKS = {
    "confirmed": ("diamond", "bad"),
    "refuted": ("cross", "stark"),
    "supported": ("triangle", "good"),
    "inconclusive": ("ring", "quiet"),
    "not-testable": ("dash", "quiet"),
    "not-run": ("dash", "quiet"),
    "passed": ("dot", "good"),
    "wrong-data": ("square", "bad"),
    "error": ("square", "bad"),
    "crashed": ("cross", "bad"),
    "hung": ("ring", "bad"),
    "reachable": ("dot", "good"),
    "lossy": ("triangle", "bad"),
    "delayed": ("triangle", "bad"),
    "no_path": ("dash", "quiet"),
    **bandwidth_chart.STATES,
}
_OTHER = ("dash", "quiet")
_BROKEN = ("cross", "bad")
#: Hosts of the matrix at most, and up to how many its cells name the interfaces.
MATRIX_HOSTS, NAMED_HOSTS = 16, 8

Some = Callable[..., list[Any]]


@dataclass(frozen=True)
class Mark:
    """A shape in a box of 18 by 18, with its tone."""

    path: str
    tone: str


@dataclass
class Matrix:
    """Hosts by hosts; a cell has (mark, state, interfaces) groups, the worst first, and is None on the diagonal."""

    hosts: list[str]
    rows: list[tuple[str, list[list[tuple[Mark, Pair, str]] | None]]]
    left_out: int


@dataclass
class Section:
    """Everything that the section prints; ``found`` is the verification whose experiments are shown."""

    command: str
    asks: bool
    ran: bool = False
    why_not: Item = field(default_factory=dict)
    lead: Item | None = None
    detail: Item | None = None
    others: list[Item] = field(default_factory=list)
    found: Mapping[str, Any] = field(default_factory=dict)
    findings: list[Item] = field(default_factory=list)
    treatments: list[Item] = field(default_factory=list)
    notices: list[Item] = field(default_factory=list)
    moved: bool = False
    narrowed: Pair | None = None
    runs: list[dict[str, Any]] = field(default_factory=list)
    measurements: list[dict[str, Any]] = field(default_factory=list)
    chart: Chart | None = None
    matrix: Matrix | None = None
    paths: list[dict[str, Any]] = field(default_factory=list)
    errors: list[tuple[str, Item]] = field(default_factory=list)
    variables: list[tuple[str, list[str]]] = field(default_factory=list)
    hosts: list[dict[str, Any]] = field(default_factory=list)
    differs: list[Pair] = field(default_factory=list)
    problems: list[Pair] = field(default_factory=list)


def mark(state: object) -> Mark:
    """Return the mark of an outcome or a state."""
    kind, tone = MARKS.get(str(state), _OTHER)
    return Mark(shape(kind, 9, 9, 6), tone)


def path_mark(state: object) -> Mark:
    """Return the mark of a path's state; whatever is neither reachable nor poor is broken."""
    kind, tone = MARKS[str(state)] if state in (REACHABLE, *POOR) else _BROKEN
    return Mark(shape(kind, 9, 9, 6), tone)


def section(document: Document, some: Some) -> Section | None:
    """Return what the section shows, None without a cause to test; ``some`` cuts a list and remembers that it did."""
    if document.get("verdict") == "healthy" or not document.get("diagnoses"):
        return None
    entries = experiments.verified(document)
    made = Section(experiments.verify_command(document), experiments.needs_command(document))
    made.ran = any(entry["verification"].get("runs") for entry in entries)
    detail = experiments.detailed(entries)
    if detail is None:
        made.why_not = (document["diagnoses"][0].get("experiment") or {}) if not made.asks else {}
        return made
    found = detail["verification"]
    made.detail, made.found = detail, found
    made.lead = entries[0] if entries[0] is not detail else None
    made.others = [entry for entry in entries if entry is not detail and entry is not made.lead]
    made.moved = bool(experiments.moved(found, "en"))
    made.narrowed = _pair(experiments.narrowed_text, found)
    made.differs, made.problems = _listed(found, "differs"), _listed(found, "problems")
    made.findings, made.notices = some(found.get("findings"), "findings", 20), some(found.get("notices"), "notices", 20)
    made.treatments = some(found.get("treatments"), "treatments", 20)
    runs = some(found.get("runs"), "runs")
    made.runs = [_run(run) for run in runs]
    made.errors = some([(str(r.get("run")), e) for r in runs for e in r.get("errors") or []], "reported")
    made.variables = _variables(runs)
    measured = some(bandwidth_chart.measurements(runs), "bus_bandwidth", bandwidth_chart.MAX_ROWS)
    made.chart, made.measurements = bandwidth_chart.chart(measured), [_measurement(row) for row in measured]
    paths = found.get("reachability") or []
    made.matrix = matrix(paths)
    made.paths = [_path(path) for path in some(experiments.folded(paths), "paths")]
    made.hosts = [_host(host) for host in some(found.get("hosts"), "hosts")]
    return made


def _pair(function: Callable[[Any, Lang], str], item: Item) -> Pair | None:
    pair = Pair(function(item, "en"), function(item, "zh"))
    return pair if pair.en else None


def _listed(item: Item, key: str) -> list[Pair]:
    english, chinese = listed(item, key, "en"), listed(item, key, "zh")
    same = len(english) == len(chinese)
    return [Pair(text, chinese[index] if same else text) for index, text in enumerate(english)]


def _run(run: Item) -> dict[str, Any]:
    return {
        "label": run.get("run"),
        "changed": _pair(experiments.changed, run),
        "message": experiments.message(run),
        "where": _pair(experiments.where, run),
        "backend": run.get("backend"),
        "mark": mark(run.get("outcome")),
        "ended": _pair(experiments.ended, run),
        "seconds": run.get("seconds"),
        "busbw": figure((run.get("bandwidth") or {}).get("busbw")),
        "shows": _pair(experiments.shows, run),
    }


def _measurement(row: Mapping[str, Any]) -> dict[str, Any]:
    run, part, rate, expected = row["run"], row["part"], row["rate"], row["expected"]
    band = f"{figure(expected['low'])} - {figure(expected['high'])}" if expected.get("high") else ""
    return {
        "label": run.get("run"),
        "message": experiments.message(part),
        "size": experiments.size_text(float(rate.get("bytes") or 0)),
        "median": rate.get("median_s"),
        "algbw": figure(rate.get("algbw")),
        "busbw": figure(rate.get("busbw")),
        "band": band,
        "source": expected.get("source"),
        "basis": f"basis_{expected['basis']}" if expected.get("basis") else None,
        "state": f"bw_{row['state']}",
        "mark": mark(row["state"]),
        "why": _pair(lambda item, lang: pick(item, "says", lang), expected)
        if row["state"] == "no-expectation"
        else None,
    }


def _path(path: dict[str, Any]) -> dict[str, Any]:
    return {
        **{key: path.get(key) for key in ("from", "by_interface", "to", "to_interface")},
        "end": experiments.endpoint(path),
        "mark": path_mark(path.get("state")),
        "says": _pair(experiments.state_word, path),
        "measured": _pair(experiments.measured, path),
        "of_log": path.get("port_kind") == "port of the log",
    }


def _host(host: Item) -> dict[str, Any]:
    entries = host.get("interfaces") or []
    return {
        "name": host.get("name") or host.get("host"),
        "interfaces": [_pair(interface_text, entry) for entry in entries[:24]],
        "versions": ", ".join(f"{key} {host[key]}" for key in ("torch", "nccl", "driver", "kernel") if host.get(key)),
        "limits": _pair(limits_text, host),
    }


def _variables(runs: Sequence[Item]) -> list[tuple[str, list[str]]]:
    """Return the variables of the runs, those of equal runs once."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        lines = tuple(f"{name}={value}" for name, value in sorted((run.get("env") or {}).items()))
        groups.setdefault(lines, []).append(str(run.get("run")))
    return [(", ".join(labels), list(lines)) for lines, labels in groups.items() if lines]


def matrix(paths: Sequence[Item]) -> Matrix | None:
    """Return the matrix of the paths, None without any; many hosts: those with failing paths first."""
    hosts = list(dict.fromkeys(str(path.get(key)) for key in ("from", "to") for path in paths))
    if not hosts:
        return None
    bad = {str(path.get(key)) for path in paths for key in ("from", "to") if path.get("state") != REACHABLE}
    shown = sorted(hosts, key=lambda host: (host not in bad, host)) if len(hosts) > MATRIX_HOSTS else sorted(hosts)
    shown = shown[:MATRIX_HOSTS]
    cells: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
    for path in paths:
        where = str(path.get("to_interface") or path.get("address") or "")
        ends = (str(path.get("from")), str(path.get("to")))
        cells.setdefault(ends, Counter())[str(path.get("state")), where] += 1
    named = len(shown) <= NAMED_HOSTS
    rows = [
        (one, [None if one == two else _cell(cells.get((one, two), Counter()), named) for two in shown])
        for one in shown
    ]
    return Matrix(shown, rows, len(hosts) - len(shown))


def _cell(counts: Counter[tuple[str, str]], named: bool) -> list[tuple[Mark, Pair, str]]:
    """Return the states of a cell with their interfaces, the worst first; without names only the worst."""
    every = Counter(where for (_, where), count in counts.items() for _ in range(count))
    states: dict[str, list[str]] = {}
    for (state, where), count in counts.items():
        share = "" if count == every[where] else f" {count}/{every[where]}"
        states.setdefault(state, []).append(f"{where}{share}")
    ordered = sorted(states, key=lambda state: (state == REACHABLE, state in POOR))[: 4 if named else 1]
    cell = []
    for state in ordered:
        says = Pair(experiments.state_word({"state": state}, "en"), experiments.state_word({"state": state}, "zh"))
        cell.append((path_mark(state), says, ", ".join(states[state][:4]) if named else ""))
    return cell or [(mark("no_path"), Pair(word("no_path", "en"), word("no_path", "zh")), "")]


def interface_text(entry: Item, lang: Lang) -> str:
    """Return ``eth0 10.0.0.1/24, MTU 1500, up to 25 Gbit/s, default route``."""
    parts = [f"{entry.get('name')} {entry.get('address')}{_prefix(entry.get('netmask'))}"]
    if entry.get("mtu"):
        parts.append(f"MTU {entry['mtu']}")
    if isinstance(entry.get("speed_mbit"), (int, float)):
        parts.append(word("up_to", lang).format(n=f"{entry['speed_mbit'] / 1000:g}"))
    if entry.get("default"):
        parts.append(word("default_route", lang))
    if entry.get("up") is False:
        parts.append(word("down", lang))
    return ", ".join(parts)


def _prefix(netmask: object) -> str:
    try:
        return f"/{ipaddress.IPv4Network(f'0.0.0.0/{netmask}').prefixlen}"
    except ValueError:
        return ""


def limits_text(host: Item, lang: Lang) -> str:
    """Return cores, /dev/shm and the limits of a process on a host."""
    parts = [f"{host['cores']} CPU"] if host.get("cores") else []
    shm = host.get("shm") or {}
    if isinstance(shm.get("size"), (int, float)):
        free = word("free", lang).format(n=experiments.size_text(shm.get("free") or 0))
        parts.append(f"/dev/shm {experiments.size_text(shm['size'])} ({free})")
    for name, value in sorted((host.get("limits") or {}).items()):
        shown = word("unlimited", lang) if value == -1 else f"{value:,}" if isinstance(value, int) else str(value)
        parts.append(f"{name} {shown}")
    return ", ".join(parts)
