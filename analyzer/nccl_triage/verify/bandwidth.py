"""The bus bandwidth to expect of a run, and what a measured one says: ``rules/verification/bandwidth.yaml``.

A bandwidth below the expected one is a finding with candidates, never a failure by itself. Hardware that the table does
not know, an unknown link, ranks that share a GPU and variables that change the path give no expectation.
"""

from __future__ import annotations

import datetime
import functools
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from nccl_triage import resources

if TYPE_CHECKING:
    from nccl_triage.engine.nodes import Node

#: Bytes below which a message measures latency, and those from which the table's bands hold.
SMALLEST, LARGE = 64 << 20, 256 << 20
#: Between the two, a healthy link reaches this share: 8 H200 have 346 of 436 GB/s at 64 MiB, 32 B200 198 of 283
#: (https://github.com/stas00/ml-engineering/tree/master/network/benchmarks, read 2026-11-22).
EARLY = 0.7
#: Earlier results of one host agree within this share.
REPEATABLE = 0.2
_FILE = "rules/verification/bandwidth.yaml"
_KINDS = ("nvlink", "pcie", "ib", "tcp", "none")
_BASES = ("published", "measured", "derived")

State = Literal["in-band", "below", "above", "no-expectation", "message-too-small"]


@dataclass(frozen=True, slots=True)
class Band:
    """The expected bus bandwidth: from ``low`` to ``high``, its source, and the causes of a lower one.

    ``id`` is ``previous`` when earlier results of the host are the expectation; ``peak`` is the link's, one direction.
    """

    id: str
    kind: str
    low: float
    high: float
    basis: str
    peak: float | None = None
    why: str = ""
    sources: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of a measured bandwidth; below the band, ``candidates`` are ids of causes, the likeliest first.

    ``band`` is the one that was applied: its lower end is smaller for messages between ``SMALLEST`` and ``LARGE``.
    """

    state: State
    band: Band | None
    says_en: str
    says_zh: str
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BandwidthRow:
    """One entry of the table; ``band`` is None where no expectation is possible, ``example`` is (GPU, link, world)."""

    id: str
    gpu: re.Pattern[str] | None
    link: re.Pattern[str]
    worlds: tuple[int, int] | None
    band: Band | None
    example: tuple[str, str, int]

    def matches(self, gpu: str, link: str, world: int) -> bool:
        """Tell whether the row applies to this GPU, link and number of ranks."""
        if self.worlds is not None and not self.worlds[0] <= world <= self.worlds[1]:
            return False
        return (self.gpu is None or bool(self.gpu.search(gpu))) and bool(self.link.search(link))


def expectation(
    gpu_name: str, link: str, world: int, several_on_one_gpu: bool = False, *, ports: int = 1
) -> Band | None:
    """Return the band for a group of ``world`` ranks, or None when nothing is known.

    ``gpu_name`` is NVML's; ``link`` is the slowest one between the ranks: ``nvlink``, ``pcie 4 x16`` (the slot's best, not
    what an idle GPU lowers it to), ``ib 400`` or ``tcp 25`` (Gbit/s of a port), ``loopback``. ``ports``: how many network
    ports of a host carry the group.
    """
    if several_on_one_gpu or world < 2:
        return None
    found = matching(table(), gpu_name, link, world)
    band = found[0].band if len(found) == 1 else None
    if band is None or band.kind not in ("ib", "tcp") or ports <= 1:
        return band
    peak = None if band.peak is None else band.peak * ports
    return replace(band, low=band.low * ports, high=band.high * ports, peak=peak)


def matching(rows: Sequence[BandwidthRow], gpu: str, link: str, world: int) -> list[BandwidthRow]:
    """Return the rows for a GPU, link and world: those that name the GPU, else those that name none."""
    found = [row for row in rows if row.matches(gpu, link.strip().lower(), world)]
    return [row for row in found if row.gpu is not None] or found


def judge(measured_busbw: float, message_bytes: int, band: Band | None, previous: Sequence[float] = ()) -> Judgement:
    """Return what a measured bus bandwidth says of a message's size and a band.

    ``previous``: earlier results of the same host and collective; their median, give or take 20 %, goes before the table.
    """
    if message_bytes < SMALLEST:
        size = f"{message_bytes / (1 << 20):.3g} MiB"
        return Judgement(
            "message-too-small",
            band,
            f"{size} measure latency, not bandwidth ({SMALLEST >> 20} MiB or more would)",
            f"{size} 的消息反映的是延迟而非带宽(至少需要 {SMALLEST >> 20} MiB)",
        )
    band = _from_previous(previous, band) or band
    if band is None or not math.isfinite(measured_busbw):
        return Judgement(
            "no-expectation",
            None,
            f"{_figure(measured_busbw)} GB/s; no expectation known for this hardware",
            f"{_figure(measured_busbw)} GB/s;该硬件没有已知的预期值",
        )
    early = band.id != "previous" and message_bytes < LARGE
    if early:
        band = replace(band, low=band.low * EARLY)
    if measured_busbw < band.low:
        return _judged("below", measured_busbw, band)
    return _judged("above" if measured_busbw > band.high else "in-band", measured_busbw, band)


def _judged(state: State, measured: float, band: Band) -> Judgement:
    english = {"below": "slower than", "in-band": "within", "above": "faster than"}[state]
    chinese = {"below": "低于", "in-band": "符合", "above": "高于"}[state]
    figures = f"{_figure(band.low)}-{_figure(band.high)} GB/s"
    origin = (
        ("earlier results of this host", "本机以往结果")
        if band.id == "previous"
        else (f"{band.id}, {band.basis}", f"{band.id}, {_BASIS_ZH[band.basis]}")
    )
    return Judgement(
        state,
        band,
        f"{_figure(measured)} GB/s of bus bandwidth, {english} the expected {figures} ({origin[0]})",
        f"总线带宽 {_figure(measured)} GB/s,{chinese}预期的 {figures}({origin[1]})",
        band.candidates if state == "below" else (),
    )


_BASIS_ZH = {"published": "厂商公布", "measured": "实测", "derived": "推算"}


def _figure(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _from_previous(previous: Sequence[float], band: Band | None) -> Band | None:
    usable = [value for value in previous if math.isfinite(value) and value > 0]
    if not usable:
        return None
    middle = statistics.median(usable)
    return Band(
        id="previous",
        kind=band.kind if band else "none",
        low=middle * (1 - REPEATABLE),
        high=middle * (1 + REPEATABLE),
        basis="measured",
        peak=band.peak if band else None,
        why=f"the median of {len(usable)} earlier result(s), give or take {REPEATABLE:.0%}",
        candidates=band.candidates if band else (),
    )


@functools.cache
def table() -> tuple[BandwidthRow, ...]:
    """Return the shipped table; raises RuleError with file and line when it is wrong."""
    source = resources.rules_dir() / "verification" / "bandwidth.yaml"
    return parse(source.read_text(encoding="utf-8"), _FILE)


def parse(text: str, path: str) -> tuple[BandwidthRow, ...]:
    """Return the rows of a table's text; raises RuleError (``path:line``) unless every row takes its own example alone."""
    from nccl_triage.engine import nodes

    found = nodes.parse(text, path).keys(["candidates", "bands"])
    causes = {
        kind: tuple(node.texts()) for kind, node in found["candidates"].keys([k for k in _KINDS if k != "none"]).items()
    }
    pairs = [(node, _row(node, causes)) for node in found["bands"].items()]
    rows = tuple(row for _, row in pairs)
    seen: set[str] = set()
    for node, row in pairs:
        if row.id in seen:
            raise node.fail("the id {id!r} is listed twice", id=row.id)
        seen.add(row.id)
        takers = [other.id for other in matching(rows, *row.example)]
        if takers != [row.id]:
            raise node.fail(
                "the example of {id!r} is matched by {takers}" if takers else "the example of {id!r} matches no row",
                id=row.id,
                takers=", ".join(takers),
            )
    return rows


def _row(node: Node, causes: dict[str, tuple[str, ...]]) -> BandwidthRow:
    kind = node.mapping()["kind"].choice(_KINDS) if "kind" in node.mapping() else ""
    measured = ["peak", "busbw", "basis", "sources"] if kind != "none" else []
    keys = node.keys(["id", "kind", "link", "why", "example", *measured], ["gpu", "worlds"])
    identity = keys["id"].text()
    example = keys["example"].keys(["gpu", "link", "world"])
    band = None
    if measured:
        low, high = _pair(keys["busbw"])
        band = Band(
            id=identity,
            kind=kind,
            low=low,
            high=high,
            basis=keys["basis"].choice(_BASES),
            peak=_number(keys["peak"]),
            why=keys["why"].text(),
            sources=tuple(_source(item) for item in keys["sources"].items()),
            candidates=causes[kind],
        )
    worlds = _pair(keys["worlds"]) if "worlds" in keys else None
    return BandwidthRow(
        id=identity,
        gpu=_pattern(keys["gpu"]) if "gpu" in keys else None,
        link=_pattern(keys["link"]),
        worlds=None if worlds is None else (int(worlds[0]), int(worlds[1])),
        band=band,
        example=(example["gpu"].text(), example["link"].text(), int(_number(example["world"]))),
    )


def _pattern(node: Node) -> re.Pattern[str]:
    try:
        return re.compile(node.text(), re.IGNORECASE)
    except re.error as error:
        raise node.fail("not a regular expression: {error}", error=error) from None


def _number(node: Node) -> float:
    try:
        value = float(node.text())
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise node.fail("expected a number above 0, found {value!r}", value=node.text())
    return value


def _pair(node: Node) -> tuple[float, float]:
    values = [_number(item) for item in node.items()]
    if len(values) != 2 or values[0] > values[1]:
        raise node.fail("expected two numbers, the lower one first")
    return values[0], values[1]


def _source(node: Node) -> str:
    keys = node.keys(["url", "read"])
    url, day = keys["url"].text(), keys["read"].text()
    if not url.startswith("https://"):
        raise keys["url"].fail("{url!r} is not an https address", url=url)
    try:
        datetime.date.fromisoformat(day)
    except ValueError:
        raise keys["read"].fail("{day!r} is not a date (YYYY-MM-DD)", day=day) from None
    return f"{url} (read {day})"
