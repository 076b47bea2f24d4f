"""The verification as the report's page shows it: rows, matrix, marks and the chart of bandwidths."""

from __future__ import annotations

import ipaddress
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.render import verification
from nccl_triage.render.chart_symbols import WIDTH, pixel, shape
from nccl_triage.render.verification import POOR, REACHABLE, Item, changed, figure, message
from nccl_triage.render.vocabulary import Pair
from nccl_triage.render.words import Document, Lang, cut, listed, pick, visible, word

#: State of a measurement -> shape and tone; a state of a newer document counts as one without expectation.
STATES = {
    "in-band": ("dot", "good"),
    "below": ("triangle", "bad"),
    "above": ("diamond", "good"),
    "no-expectation": ("ring", "quiet"),
    "message-too-small": ("dash", "quiet"),
}
#: The most rows drawn.
MAX_ROWS = 40
_GUTTER, _RIGHT, _ROW, _TOP, _LABEL = 330, 84, 26, 30, 48


@dataclass(frozen=True)
class BandwidthBar:
    """One measurement: the mark at its bandwidth, and the band (left, width) where one is known."""

    y: int
    label: Pair
    x: int
    path: str
    tone: str
    value: str
    state: str
    band: tuple[int, int] | None


@dataclass(frozen=True)
class BandwidthChart:
    """The chart's parts; ``states`` are those that occur, for the legend."""

    height: int
    bars: list[BandwidthBar]
    ticks: list[tuple[int, str]]
    states: list[str]


def measurements(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for every bandwidth that was measured: a run's own, then those of its further collectives."""
    rows = []
    for run in runs:
        for part in (run, *(run.get("parts") or [])):
            rate = part.get("bandwidth") or {}
            if isinstance(rate.get("busbw"), (int, float)):
                expected = part.get("expected") or {}
                state = str(expected.get("state"))
                state = state if state in STATES else "no-expectation"
                rows.append({"run": run, "part": part, "rate": rate, "expected": expected, "state": state})
    return rows


#: Rates, in GB/s, between which the axis has round values: a document may hold any number.
_LEAST, _MOST = 1e-6, 1e15


def _ticks(most: float) -> list[float]:
    """Return about five round values from 0 to the first one that is not below ``most``."""
    raw = min(max(most, _LEAST), _MOST) / 5 if most else 0.2
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    return [round(step * index, 10) for index in range(max(1, math.ceil(round(most / step, 6))) + 1)]


def _bar_label(row: Mapping[str, Any], lang: Lang) -> str:
    own = row["part"] is row["run"]
    what = changed(row["run"], lang) if own else message(row["part"])
    return cut(visible(f"{row['run'].get('run') or '?'}: {what}", 200), _LABEL)


def bandwidth_chart(rows: Sequence[Mapping[str, Any]]) -> BandwidthChart | None:
    """Return the chart of the first rows of ``measurements``, or None without any."""
    rows = rows[:MAX_ROWS]
    if not rows:
        return None
    values = [float(row["rate"]["busbw"]) for row in rows]
    ticks = _ticks(max([*values, *(float(row["expected"].get("high") or 0) for row in rows)]))
    scale = (WIDTH - _GUTTER - _RIGHT) / ticks[-1]

    def x(value: float) -> int:
        return pixel(_GUTTER + value * scale)

    bars = []
    for index, (row, value) in enumerate(zip(rows, values, strict=True)):
        kind, tone = STATES[row["state"]]
        low, high = row["expected"].get("low"), row["expected"].get("high")
        known = isinstance(low, (int, float)) and isinstance(high, (int, float))
        y = _TOP + _ROW * index + _ROW // 2
        bars.append(
            BandwidthBar(
                y=y,
                label=Pair(_bar_label(row, "en"), _bar_label(row, "zh")),
                x=x(value),
                path=shape(kind, x(value), y, 6),
                tone=tone,
                value=figure(value),
                state=row["state"],
                band=(x(low), max(x(high) - x(low), 2)) if known else None,
            )
        )
    present = {row["state"] for row in rows}
    states = [state for state in STATES if state in present]
    return BandwidthChart(
        _TOP + _ROW * len(rows) + 8, bars, [(x(v), f"{v:,.6f}".rstrip("0").rstrip(".")) for v in ticks], states
    )


#: Outcome of an experiment, of a run, state of a path -> shape and tone; what is unknown gets ``_OTHER``.
MARKS = {
    "confirmed": ("diamond", "bad"),
    "refuted": ("cross", "stark"),
    "supported": ("triangle", "good"),
    "not-reproduced": ("dot", "quiet"),
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
    **STATES,
}
_OTHER = ("dash", "quiet")
_BROKEN = ("cross", "bad")
#: Hosts of the matrix at most, and up to how many its cells name the interfaces.
MATRIX_HOSTS, NAMED_HOSTS = 16, 8

Some = Callable[..., list[Any]]


@dataclass(frozen=True)
class StateMark:
    """A shape in a box of 18 by 18, with its tone."""

    path: str
    tone: str


@dataclass
class PathMatrix:
    """Hosts by hosts; a cell has (mark, state, interfaces) groups, the worst first, and is None on the diagonal."""

    hosts: list[str]
    rows: list[tuple[str, list[list[tuple[StateMark, Pair, str]] | None]]]
    left_out: int


@dataclass
class VerificationSection:
    """Everything that the section prints; ``found`` is the verification whose experiments are shown."""

    commands: list[str]
    note: Pair | None
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
    chart: BandwidthChart | None = None
    matrix: PathMatrix | None = None
    paths: list[dict[str, Any]] = field(default_factory=list)
    errors: list[tuple[str, Item]] = field(default_factory=list)
    variables: list[tuple[str, list[str]]] = field(default_factory=list)
    hosts: list[dict[str, Any]] = field(default_factory=list)
    differs: list[Pair] = field(default_factory=list)
    problems: list[Pair] = field(default_factory=list)


def mark(state: object) -> StateMark:
    """Return the mark of an outcome or a state."""
    kind, tone = MARKS.get(str(state), _OTHER)
    return StateMark(shape(kind, 9, 9, 6), tone)


def path_mark(state: object) -> StateMark:
    """Return the mark of a path's state; whatever is neither reachable nor poor is broken."""
    kind, tone = MARKS[str(state)] if state in (REACHABLE, *POOR) else _BROKEN
    return StateMark(shape(kind, 9, 9, 6), tone)


def section(document: Document, some: Some) -> VerificationSection | None:
    """Return what the section shows, None without a cause to test; ``some`` cuts a list and remembers that it did."""
    if document.get("verdict") == "healthy" or not document.get("diagnoses"):
        return None
    entries = verification.verified(document)
    command = verification.to_confirm(document)
    note = _pair(verification.verify_note, command)
    made = VerificationSection(verification.verify_lines(command), note, verification.needs_command(document))
    made.ran = any(entry["verification"].get("runs") for entry in entries)
    detail = verification.detailed(entries)
    if detail is None:
        made.why_not = (document["diagnoses"][0].get("experiment") or {}) if not made.asks else {}
        return made
    found = detail["verification"]
    made.detail, made.found = detail, found
    made.lead = entries[0] if entries[0] is not detail else None
    made.others = [entry for entry in entries if entry is not detail and entry is not made.lead]
    made.moved = bool(verification.moved(found, "en"))
    made.narrowed = _pair(verification.narrowed_text, found)
    made.differs, made.problems = _listed(found, "differs"), _listed(found, "problems")
    made.findings, made.notices = some(found.get("findings"), "findings", 20), some(found.get("notices"), "notices", 20)
    made.treatments = some(found.get("treatments"), "treatments", 20)
    runs = some(found.get("runs"), "runs")
    made.runs = [_run(run) for run in runs]
    made.errors = some([(str(r.get("run")), e) for r in runs for e in r.get("errors") or []], "reported")
    made.variables = _variables(runs)
    measured = some(measurements(runs), "bus_bandwidth", MAX_ROWS)
    made.chart, made.measurements = bandwidth_chart(measured), [_measurement(row) for row in measured]
    paths = found.get("reachability") or []
    made.matrix = matrix(paths)
    made.paths = [_path(path) for path in some(verification.folded(paths), "paths")]
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
        "changed": _pair(verification.changed, run),
        "message": verification.message(run),
        "where": _pair(verification.where, run),
        "backend": run.get("backend"),
        "mark": mark(run.get("outcome")),
        "ended": _pair(verification.ended, run),
        "seconds": run.get("seconds"),
        "busbw": figure((run.get("bandwidth") or {}).get("busbw")),
        "shows": _pair(verification.shows, run),
    }


def _measurement(row: Mapping[str, Any]) -> dict[str, Any]:
    run, part, rate, expected = row["run"], row["part"], row["rate"], row["expected"]
    band = f"{figure(expected['low'])} - {figure(expected['high'])}" if expected.get("high") else ""
    return {
        "label": run.get("run"),
        "message": verification.message(part),
        "size": verification.size_text(float(rate.get("bytes") or 0)),
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
        "end": verification.endpoint(path),
        "mark": path_mark(path.get("state")),
        "says": _pair(verification.state_word, path),
        "measured": _pair(verification.measured, path),
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


def matrix(paths: Sequence[Item]) -> PathMatrix | None:
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
    return PathMatrix(shown, rows, len(hosts) - len(shown))


def _cell(counts: Counter[tuple[str, str]], named: bool) -> list[tuple[StateMark, Pair, str]]:
    """Return the states of a cell with their interfaces, the worst first; without names only the worst."""
    every = Counter(where for (_, where), count in counts.items() for _ in range(count))
    states: dict[str, list[str]] = {}
    for (state, where), count in counts.items():
        share = "" if count == every[where] else f" {count}/{every[where]}"
        states.setdefault(state, []).append(f"{where}{share}")
    ordered = sorted(states, key=lambda state: (state == REACHABLE, state in POOR))[: 4 if named else 1]
    cell = []
    for state in ordered:
        says = Pair(verification.state_word({"state": state}, "en"), verification.state_word({"state": state}, "zh"))
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
        free = word("free", lang).format(n=verification.size_text(shm.get("free") or 0))
        parts.append(f"/dev/shm {verification.size_text(shm['size'])} ({free})")
    for name, value in sorted((host.get("limits") or {}).items()):
        shown = word("unlimited", lang) if value == -1 else f"{value:,}" if isinstance(value, int) else str(value)
        parts.append(f"{name} {shown}")
    return ", ".join(parts)
