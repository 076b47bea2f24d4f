"""The comparison with a good run in words: one row a difference, the same for every format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nccl_triage.render.words import Document, Lang, Pair, place, visible, word

#: Differences of a short account, and characters of a value.
SHORT, MAX_VALUE = 5, 160
#: Subjects that are worth a line of a short account when they speak for no cause: what merely comes of the failure is not.
_TELLING = ("variable", "version", "interface", "transport", "world", "topology", "algorithm", "pace")


@dataclass(frozen=True, slots=True)
class Row:
    """One difference: subject and name, the values of both runs, and where they stand."""

    subject: Pair
    name: str
    good: str
    bad: str
    good_at: Mapping[str, Any]
    at: Mapping[str, Any]
    causes: tuple[str, ...]


def compared(document: Document) -> Mapping[str, Any] | None:
    """Return the comparison of a document, None where there was nothing to compare."""
    found: Mapping[str, Any] | None = document.get("baseline")
    return found


def logs(found: Mapping[str, Any]) -> str:
    """Return the names of the good run's logs."""
    names = [visible(log.get("path")) for log in found.get("good") or []]
    more = int(found.get("logs") or 0) - len(names)
    return ", ".join([*names, *([f".. +{more}"] if more > 0 else [])])


def rows(found: Mapping[str, Any]) -> list[Row]:
    """Return the differences, first where the runs part."""
    parted = found.get("divergence")
    return [_row(entry) for entry in [*([parted] if parted else []), *(found.get("differences") or [])]]


def _row(entry: Mapping[str, Any]) -> Row:
    subject = f"diff_{entry.get('subject')}"
    ratio = entry.get("ratio")
    bad = _value(entry.get("bad")) + (f" (x{ratio:g})" if isinstance(ratio, (int, float)) else "")
    return Row(
        Pair(word(subject, "en"), word(subject, "zh")),
        visible(entry.get("name"), MAX_VALUE),
        _value(entry.get("good")),
        bad,
        entry.get("good_at") or {},
        entry,
        tuple(str(cause) for cause in entry.get("causes") or ()),
    )


def _value(value: object) -> str:
    return "-" if value is None else visible(value, MAX_VALUE)


def brief(document: Document, lang: Lang) -> list[str]:
    """Return the comparison in a few lines: where the runs part, and the differences that matter."""
    found = compared(document)
    if found is None or (not found.get("divergence") and not found.get("differences")):
        return []
    parted, differences = found.get("divergence"), found.get("differences") or []
    chosen = [d for d in differences if _matters(d)][:SHORT]
    told = [_line(_row(entry), lang) for entry in [*([parted] if parted else []), *chosen]]
    left = int(found.get("total") or 0) - len(chosen)
    return [*told, *([word("diff_more", lang).format(n=left)] if left > 0 else [])]


def _matters(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("causes")) or entry.get("subject") in _TELLING or entry.get("when") == "before"


def _line(row: Row, lang: Lang) -> str:
    good = f"{row.good} ({visible(place(row.good_at))})" if row.good_at else row.good
    subject = row.subject.zh if lang == "zh" else row.subject.en
    name = f" {row.name}" if row.name else ""
    return f"{subject}{name}: {good} -> {row.bad} ({visible(place(row.at))})"
