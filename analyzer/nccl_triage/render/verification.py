"""A verification in words: what its runs and paths show, and plans and outcomes as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nccl_triage.document.verify_commands import place_of, ready_commands
from nccl_triage.render.words import Document, Lang, certainty, confidence, listed, pick, rank_ranges, visible, word

Item = Mapping[str, Any]

#: States of a path on which the words of every format agree; others are shown as they are.
REACHABLE, POOR = "reachable", frozenset({"lossy", "delayed"})
#: States of a bandwidth that had an expectation.
JUDGED = frozenset({"in-band", "below", "above"})

#: Kinds of experiments that no collective can reproduce.
UNTESTABLE = ("none", "memory")


def verified(document: Document) -> list[Item]:
    """Return the diagnoses that have a verification, in their order."""
    return [entry for entry in document.get("diagnoses") or [] if entry.get("verification")]


def detailed(entries: Sequence[Item]) -> Item | None:
    """Return the verified diagnosis whose experiments are shown: the first for which anything ran, else the first."""
    ran = (entry for entry in entries if entry["verification"].get("runs"))
    return next(ran, entries[0] if entries else None)


def testable(document: Document) -> bool:
    """Tell whether experiments can test one of the causes."""
    kinds = [(entry.get("experiment") or {}).get("kind") for entry in document.get("diagnoses") or []]
    return any(kind not in UNTESTABLE for kind in kinds)


def needs_command(document: Document) -> bool:
    """Tell whether a test is possible and none has run."""
    entries = verified(document)
    ran = any(entry["verification"].get("runs") for entry in entries)
    asked = any(entry["verification"].get("outcome") == "not-run" for entry in entries)
    return asked and not ran if entries else testable(document)


def moved(verification: Item, lang: Lang) -> str:
    """Return the confidence before and after, empty when the experiments did not change it."""
    before, after = verification.get("before") or {}, verification.get("after") or {}
    numbers = [item.get("confidence") for item in (before, after)]
    if all(before.get(name) == after.get(name) for name in ("status", "confidence")) or not all(
        isinstance(number, (int, float)) for number in numbers
    ):
        return ""
    return " -> ".join(_sure(item, lang) for item in (before, after))


def _sure(item: Item, lang: Lang) -> str:
    return f"{confidence(item.get('confidence'))} ({certainty(item, lang)})"


def narrowed_text(verification: Item, lang: Lang) -> str:
    """Return the result of the bisection as a sentence."""
    found = verification.get("narrowed")
    if not found:
        return ""
    hosts, ranks = found.get("hosts"), found.get("ranks")
    who = ", ".join(map(str, hosts)) if hosts else f"rank {rank_ranges(ranks or [])}"
    kind = str(found.get("kind"))
    key = f"narrowed_{kind if kind in ('one', 'pair') else 'group'}"
    return word(key, lang).format(who=who, n=found.get("runs") or 0)


def size_text(count: float) -> str:
    """Return bytes for people."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def figure(value: object) -> str:
    """Return a bandwidth with three digits that mean something, never in powers of ten."""
    if not isinstance(value, (int, float)):
        return ""
    if abs(value) >= 1e15:
        return f"{value:.3g}"
    digits = 0 if abs(value) >= 100 else 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{min(max(digits, 0), 5)}f}"


def message(item: Item) -> str:
    """Return ``ALLREDUCE 65,536 x float32, bfloat16`` of a run with a second pass, or of a part of one."""
    op, numel = item.get("op") or "?", item.get("numel")
    if not isinstance(numel, int):
        return str(op)
    parts = item.get("parts") or []
    same = [part for part in parts if (part.get("op"), part.get("numel")) == (op, numel)]
    dtypes = dict.fromkeys(str(part.get("dtype")) for part in (item, *same))
    others = f" (+{len(parts) - len(same)})" if len(parts) > len(same) else ""
    return f"{op} {numel:,} x {', '.join(dtypes)}{others}"


def where(run: Item, lang: Lang) -> str:
    """Return ``ranks 0-3 on node-a, node-b``."""
    hosts = [str(host) for host in run.get("hosts") or []]
    shown = ", ".join(hosts[:4]) + (f", .. ({len(hosts)})" if len(hosts) > 4 else "")
    return word("ranks_on", lang).format(ranks=rank_ranges(run.get("ranks") or []), hosts=shown or "?")


def changed(run: Item, lang: Lang) -> str:
    """Return what a run changes, or that it is a control."""
    return pick(run, "changed", lang) or word("control", lang)


def ended(run: Item, lang: Lang) -> str:
    """Return how a run ended, and at which stage when it did not pass."""
    outcome, stage = str(run.get("outcome")), run.get("stage")
    text = word(f"run_{outcome}", lang).removeprefix("run_")
    if outcome == "passed" or not stage:
        return text
    return f"{text} ({word(f'stage_{stage}', lang).removeprefix('stage_')})"


def shows(run: Item, lang: Lang) -> str:
    """Return what a run shows: what stands out, else what a bandwidth that can be judged says, else its first error."""
    expected = run.get("expected") or {}
    for item in (run.get("finding"), expected if expected.get("state") in JUDGED else None):
        if item and pick(item, "says", lang):
            return pick(item, "says", lang)
    for error in run.get("errors") or []:
        text = visible(" ".join(str(error.get("text") or "").split()), 200)
        return f"rank {error.get('rank')}: {error.get('type') or error.get('exit_code')}: {text}"
    return pick(run, "reason", lang) if run.get("outcome") != "passed" else ""


def state_word(path: Item, lang: Lang) -> str:
    """Return the state of a path as a word."""
    return word(f"path_{path.get('state')}", lang).removeprefix("path_") or "?"


def folded(paths: Iterable[Item]) -> list[dict[str, Any]]:
    """Return the paths that fail or are poor, those that differ in their port alone as one, with their ``ports``."""
    keys = ("from", "by_interface", "to", "to_interface", "address", "state", "error", "port_kind")
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in paths:
        if path.get("state") == REACHABLE:
            continue
        group = groups.setdefault(tuple(path.get(key) for key in keys), {**path, "ports": []})
        group["ports"].append(path.get("port"))
    # Failing paths come before poor ones.
    return sorted(groups.values(), key=lambda path: path.get("state") in POOR)


def endpoint(path: Item) -> str:
    """Return ``10.0.0.2:41391`` of a folded path, or the address and its ports."""
    ports = [str(port) for port in path.get("ports") or [path.get("port")]]
    more = f",..({len(ports)})" if len(ports) > 4 else ""
    return f"{path.get('address')}:{','.join(ports[:4])}{more}"


def measured(path: Item, lang: Lang) -> str:
    """Return the error of a path, and what was measured where it is only poor."""
    parts = [str(path["error"])] if path.get("error") else []
    if path.get("round_trip_s"):
        parts.append(f"{1000 * float(path['round_trip_s']):.3g} ms")
    if path.get("sent_again"):
        parts.append(word("sent_again", lang).format(n=path["sent_again"]))
    return ", ".join(parts)


def to_confirm(document: Document) -> Item:
    """Return the command that can test the diagnosis: that of the job's platform, and never one that has just not run."""
    for entry in verified(document):
        found = entry["verification"].get("to_confirm")
        known = [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []
        if known and verify_lines(known[0]):
            return known[0]
    return ready_commands(place_of(document))[0].to_dict()


def verify_lines(command: Item) -> list[str]:
    """Return the lines of a command of ``to_confirm``."""
    return [str(line) for line in command.get("commands") or [] if isinstance(line, str)]


def verify_command(document: Document) -> str:
    """Return the line that puts the diagnosis to the test, the first where it takes several."""
    return verify_lines(to_confirm(document))[0]


def verify_note(command: Item, lang: Lang) -> str:
    """Return what must be known before a command of ``to_confirm``, empty without anything."""
    return word("semicolon", lang).join(filter(None, (pick(command, key, lang) for key in ("note", "names"))))


Lines = list[str]
#: Maximum number of lines about paths; the JSON has them all.
_PATHS = 6


def outcome_lines(verification: Mapping[str, Any], lang: Lang) -> Lines:
    """Return the details of an outcome, one line each: confidence before and after, runs, paths that fail."""
    lines = [_labelled("confidence", moved(verification, lang), lang)]
    lines += [_run(run, lang) for run in verification.get("runs") or []]
    lines.append(narrowed_text(verification, lang))
    bad = folded(verification.get("reachability") or [])
    lines += [_path(path, lang) for path in bad[:_PATHS]]
    if len(bad) > _PATHS:
        lines.append(f".. {len(bad) - _PATHS} {word('more_lines', lang)}")
    for notice in verification.get("notices") or []:
        lines.append(_labelled("notices", f"{notice.get('run')}: {pick(notice, 'says', lang)}", lang))
    for key, label in (("differs", "differs"), ("problems", "problems")):
        lines += [_labelled(label, str(text), lang) for text in listed(verification, key, lang)]
    return [visible(line) for line in lines if line]


def _labelled(key: str, text: str, lang: Lang) -> str:
    return f"{word(key, lang).lower()}: {text}" if text else ""


def _run(run: Mapping[str, Any], lang: Lang) -> str:
    what = ", ".join(
        [
            changed(run, lang),
            message(run),
            where(run, lang),
            str(run.get("backend")),
            *([f"{figure(run['bandwidth'].get('busbw'))} GB/s"] if run.get("bandwidth") else []),
        ]
    )
    found = shows({**run, "expected": None}, lang)  # a slow run has a line of its own
    took = f"{float(run.get('seconds') or 0):.1f} s"
    return f"{run.get('run')}: {ended(run, lang)}, {took}: {what}{f': {found}' if found else ''}"


def _path(path: Mapping[str, Any], lang: Lang) -> str:
    by = f" ({path['by_interface']})" if path.get("by_interface") else ""
    end = f"{path.get('to')} {endpoint(path)} ({path.get('to_interface')})"
    details = measured(path, lang)
    state = state_word(path, lang) + (f", {details}" if details else "")
    return f"{path.get('from')}{by} -> {end}: {state}"
