"""What to do, each thing once: what comes first, then the steps by urgency, the other repairs and the deciding check.

Commands that were told are not told again: a fix whose commands all stand in the first place is left out below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from nccl_triage.render.text_page import NextStep, chosen, commands_of, likeliest_repair, steps
from nccl_triage.render.vocabulary import Pair
from nccl_triage.render.words import Document, Lang, pick, word

Item = Mapping[str, Any]
_NOTHING = Pair("", "")

#: Maximum number of commands in the first place, of checks and of missing pieces of evidence without a cause, and of fixes.
COMMANDS, CHECKS, MISSING, FIXES = 3, 2, 2, 8


@dataclass(frozen=True)
class Task:
    """One thing to do, with its commands, what to beware of, when it applies, and where it is documented."""

    what: Pair
    commands: list[str] = field(default_factory=list)
    caution: Pair = _NOTHING
    applies_to: Pair = _NOTHING
    references: list[str] = field(default_factory=list)


@dataclass
class Tasks:
    """What comes first, the steps of each stage, the other repairs; ``told`` are texts and commands that stand in ``now``."""

    now: list[Task] = field(default_factory=list)
    stages: list[tuple[str, list[Task]]] = field(default_factory=list)
    fixes: list[Task] = field(default_factory=list)
    references: list[str] = field(default_factory=list)
    told: set[str] = field(default_factory=set)

    def tells(self, item: Item) -> bool:
        """Tell whether a check or a missing piece of evidence stands in the first place."""
        return any(task.what.en.endswith(pick(item, "what", "en")) for task in self.now)

    def add(self, tasks: Iterable[Task]) -> None:
        """Add what comes first, and remember it."""
        for task in tasks:
            self.now.append(task)
            self.told |= {task.what.en, *task.commands}


def is_remark(command: object) -> bool:
    """Tell whether a command is a remark to a reader; a directive of a scheduler is none."""
    return str(command).startswith("# ")


def _pair(item: Item, key: str) -> Pair:
    return Pair(pick(item, key, "en"), pick(item, key, "zh"))


def tasks(document: Document, best: Item | None) -> Tasks:
    """Return what to do about a cause; without one, what would tell more."""
    found = Tasks()
    if best is None:
        found.add(_unknown(document))
        return found
    found.add(_first(best))
    found.stages = [
        (str(when), kept)
        for when, items in groupby(best.get("stages") or [], key=lambda item: item.get("when"))
        if (kept := [task for task in map(_step, items) if not set(task.commands) & found.told])
    ]
    for fix in (best.get("fixes") or [])[:FIXES]:
        left = [command for command in commands_of(fix) if command not in found.told]
        references = [str(url) for url in fix.get("references") or []]
        if fix.get("title") in found.told and not left:
            found.references += [url for url in references if url not in found.references]
            continue
        found.fixes.append(Task(_pair(fix, "title"), left, _pair(fix, "caution"), _pair(fix, "applies_to"), references))
    return found


def repairs(verdict: str, best: Item) -> list[str]:
    """Return the ids of the fixes that the short text names, in its order; without a verdict, of the one that it names."""
    if verdict == "unknown":
        named = likeliest_repair(best)
        return [str(named.get("id"))] if named is not None else []
    return [step.id for step in chosen(steps(best, "en"), COMMANDS) if step.key == "do_now"]


def _first(best: Item) -> list[Task]:
    """Return the repairs that the short text names, too."""
    english, chinese = ([one for one in steps(best, lang) if one.key == "do_now"] for lang in ("en", "zh"))
    translated = {(one.what, one.caution): other for one, other in zip(english, chinese, strict=True)}

    def task(step: NextStep) -> Task:
        other = translated[step.what, step.caution]
        return Task(Pair(step.what, other.what), step.commands, Pair(step.caution, other.caution))

    return [task(step) for step in chosen(english, COMMANDS)]


def _step(item: Item) -> Task:
    command = item.get("command")
    return Task(_pair(item, "what"), [str(command)] if command else [])


def _unknown(document: Document) -> list[Task]:
    """Return the checks that tell the likeliest causes apart, and the evidence that is missing."""
    checks = [cause["next_check"] for cause in document.get("diagnoses") or [] if cause.get("next_check")]
    missing = sorted(document.get("not_seen") or [], key=lambda item: not commands_of(item))
    return [
        *(Task(_pair(check, "what"), _step(check).commands) for check in _once(checks)[:CHECKS]),
        *(Task(_collect(item), commands_of(item)) for item in _once(missing)[:MISSING]),
    ]


def _collect(item: Item) -> Pair:
    languages: tuple[Lang, Lang] = ("en", "zh")
    en, zh = (f"{word('collect', lang)}{word('colon', lang)}{pick(item, 'what', lang)}" for lang in languages)
    return Pair(en[:1].upper() + en[1:], zh)


def _once(items: Iterable[Item]) -> list[Item]:
    return list({str(item.get("what")): item for item in items}.values())
