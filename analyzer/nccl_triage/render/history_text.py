"""The pages of ``nccl-triage history`` for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nccl_triage.render import explanation
from nccl_triage.render.explanation import ExplanationBlock
from nccl_triage.render.words import Lang, certainty, confidence, culprit_name, pick, visible, word

Data = Mapping[str, Any]
#: Hosts named in a cell.
_NAMED = 3


def _causes(entry: Data) -> str:
    return ", ".join(f"{one['cause']} {one['times']}" for one in entry["causes"])


def _named(entry: Data) -> str:
    """Return the hosts that an incident names."""
    names = list(dict.fromkeys(one["host"] for one in entry["culprits"] if one["host"]))
    more = f" +{len(names) - _NAMED}" if len(names) > _NAMED else ""
    return (", ".join(names[:_NAMED]) + more) or "-"


def incidents(data: Iterable[Data], lang: Lang) -> list[ExplanationBlock]:
    """Return a table of incidents."""
    rows = tuple(
        (
            str(one["id"]),
            one["time"] if one["dated"] else f"{one['time']}*",
            one["cause"] or word(one["verdict"], lang),
            _named(one),
            pick(one, "headline", lang),
        )
        for one in data
    )
    return [ExplanationBlock("table", heads=("",) * 5, rows=rows)]


def incident(one: Data, lang: Lang) -> list[ExplanationBlock]:
    """Return everything that is kept of one incident."""
    sure = f"{word('confidence', lang)} {confidence(one['confidence'])}, {certainty(one, lang)}"
    fields = [
        ("time", one["time"] if one["dated"] else f"{one['time']} ({word('history_undated', lang)})"),
        ("history_recorded", one["recorded"]),
        ("verdict", f"{one['cause']} ({sure})" if one["cause"] else word(one["verdict"], lang)),
        *(("culprit", _suspect(culprit, lang)) for culprit in one["culprits"]),
        ("world_size", one["world_size"]),
        ("launcher", one["launcher"]),
        ("hosts", _some(one["hosts"], one["host_count"])),
        ("software", ", ".join(f"{name} {value}" for name, value in one["software"].items())),
        *(("inputs", f"{log['path']} ({log['bytes']:,} B, {log['lines']:,} {word('lines', lang).lower()})")
          for log in one.get("inputs") or []),
    ]  # fmt: skip
    shown = [ExplanationBlock("field", str(value), word(key, lang).lower()) for key, value in fields if value]
    return [ExplanationBlock("title", f"{one['id']}: {pick(one, 'headline', lang)}"), *shown]


def _suspect(culprit: Data, lang: Lang) -> str:
    name = culprit_name(culprit, lang)
    return f"{name} (PCI {culprit['pci']})" if culprit.get("pci") else name


def _some(names: list[str], total: int) -> str:
    return ", ".join(names[:20]) + (f" +{total - 20}" if total > 20 else "")


def hosts(data: Iterable[Data], lang: Lang) -> list[ExplanationBlock]:
    """Return a table of the hosts that failed."""
    rows = tuple(
        (
            visible(one["name"]),
            str(one["times"]),
            f"{one['first'][:10]} .. {one['last'][:10]}",
            f"{word('history_worked', lang)}: {one['worked_since']}",
            _causes(one),
        )
        for one in data
    )
    return [ExplanationBlock("table", heads=("",) * 5, rows=rows)]


def recurrence(data: Iterable[Data], lang: Lang) -> list[ExplanationBlock]:
    """Return a sentence for everything that recurs, by kind."""
    blocks: list[ExplanationBlock] = []
    for kind in ("host", "gpu", "rank", "cause"):
        said = [ExplanationBlock("item", pick(one, "says", lang)) for one in data if one["kind"] == kind]
        blocks += [ExplanationBlock("group", word(f"history_{kind}", lang)), *said] if said else []
    return blocks


def text(blocks: list[ExplanationBlock], width: int | None, color: bool) -> str:
    """Return the blocks as lines."""
    return explanation.text(blocks, width, color)
