"""Read rule files into a RuleSet, with every error at its file:line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_triage import resources
from nccl_triage.engine import build, nodes, producers, series_load, snapshot
from nccl_triage.engine.derived import AnchorTable
from nccl_triage.engine.schema import RuleSet
from nccl_triage.engine.supports import Support, attach
from nccl_triage.errors import InputError, RuleError

if TYPE_CHECKING:
    from importlib.abc import Traversable

#: The folders of rules that a diagnosis reads; users may have them, too.
KINDS = ("signatures", "causes", "producers", "terms", "witnesses", "series", "stacks")


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield (display path, text) of every YAML file below a folder, in a fixed order."""
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        name = f"{prefix}/{entry.name}"
        if entry.is_dir():
            yield from _files(entry, name)
        elif entry.name.endswith((".yaml", ".yml")):
            try:
                yield name, entry.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise RuleError("cannot be read: {error}", where=name, error=error) from None


def _read_texts(folder: Traversable, label: str) -> list[tuple[str, str, str]]:
    """Return (kind, path, text) of every rule file in a folder of rules."""
    return [
        (kind, path, text)
        for kind in KINDS
        if (folder / kind).is_dir()
        for path, text in _files(folder / kind, f"{label}/{kind}")
    ]


def _add(part: dict[str, Any], item: Any) -> None:
    """Take over a rule; nothing may shadow an id silently."""
    other = part.get(item.id)
    if other is not None:
        raise RuleError("{id!r} exists already ({place})", where=item.where, id=item.id, place=other.where)
    part[item.id] = item


def _read_folder(folder: Traversable, label: str, user: bool, into: RuleSet) -> list[str]:
    """Read a folder of rules into a set; returns the texts of its files."""
    files = _read_texts(folder, label)
    texts = [text for _, _, text in files]
    table = AnchorTable(_digest(texts))
    supports: list[Support] = []
    spoken: list[producers.Row] = []
    for kind, path, text in files:
        root = nodes.parse(text, path)
        if kind == "causes":
            cause = build.cause(root, user)
            if Path(path).stem != cause.id:
                raise RuleError("the file of cause {id!r} must be named {id}.yaml", where=cause.where, id=cause.id)
            _add(into.causes, cause)
        elif kind == "witnesses":
            for item in root.keys(("witnesses",))["witnesses"].items():
                _add(into.witnesses, build.witness(item, user))
        elif kind == "stacks":
            for item in root.keys(("activities",))["activities"].items():
                _add(into.activities, build.activity(item, user))
        elif kind == "producers":
            for item in root.keys(("producers",))["producers"].items():
                spoken += producers.rows(item, user)
        elif kind == "terms":
            part = root.keys((), ("premises", "words"))
            for item in part["premises"].items() if "premises" in part else ():
                _add(into.premises, build.premise(item))
            for item in part["words"].items() if "words" in part else ():
                _add(into.words, build.words(item))
        elif kind == "series":
            series_load.read(root, user, into.series)
        else:
            part = root.keys(("program", "signatures"), ("title",))
            for item in part["signatures"].items():
                found = build.signature(item, part["program"].text(), user, table)
                _add(into.signatures, found)
                supports += build.supports(item, found.id, user)
    attach(into.causes, supports, spoken)
    table.save()
    return texts


def _digest(texts: list[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _shipped() -> RuleSet:
    """Return the shipped rules, as they are kept in the cache where that is possible."""
    folder = resources.rules_dir()
    entry = snapshot.name(folder)
    known = snapshot.read(entry)
    if known is not None:
        return known
    rules = RuleSet({}, {}, "")
    rules = replace(rules, digest=_digest(_read_folder(folder, "rules", False, rules)))
    series_load.check_names(rules.series)
    snapshot.write(entry, rules)
    return rules


def load(user_folders: tuple[Path, ...] = (), builtin: bool = True) -> RuleSet:
    """Load the shipped rules and those of the user's folders; nothing may shadow an id silently."""
    rules = _shipped() if builtin else RuleSet({}, {}, "")
    texts = [rules.digest] if builtin else []
    for folder in user_folders:
        if not folder.is_dir():
            raise InputError(
                "{folder} is no folder of rules", remedy="give a folder with signatures/ or causes/", folder=folder
            )
        found = _read_folder(folder, str(folder), True, rules)
        if not found:
            raise InputError(
                "{folder} holds no rules", remedy="put YAML files below signatures/ or causes/ in it", folder=folder
            )
        texts += found
    if not user_folders and builtin:
        return rules
    series_load.check_names(rules.series)
    return replace(rules, digest=_digest(texts))
