"""Variables and options: reading ``rules/variables``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from nccl_triage.engine import nodes
from nccl_triage.engine.nodes import Node
from nccl_triage.errors import RuleError
from nccl_triage.knowledge import reading
from nccl_triage.knowledge.entries import FINDINGS, KINDS, STATUSES, Grammar, Namespace, Text, ValueSample, Variable
from nccl_triage.knowledge.reading import Part

_OPTIONAL = (
    "kind", "values", "default", "since", "until", "absent", "gone", "caution", "touch", "verification", "undo", "replaced_by", "aliases",
    "harmless", "traps", "samples", "causes", "references", "source",
)  # fmt: skip
#: Keys that a file may set once for all its entries.
_COMMON = ("touch", "verification", "undo", "references", "source")


def _default(node: Node) -> tuple[tuple[str, str], ...]:
    """Return the history of a default: one value, or version -> value with ``old`` for the oldest."""
    if not isinstance(node.value, dict):
        return (("", node.text()),)
    return tuple(("" if name == "old" else name, value.text()) for name, value in node.mapping().items())


def _sample(node: Node) -> ValueSample:
    part = node.keys(("value",), ("finds", "versions", "with"))
    return ValueSample(
        value=part["value"].text(),
        finds=part["finds"].choice(FINDINGS) if "finds" in part else None,
        versions=reading.mapping(part, "versions"),
        environment=reading.mapping(part, "with"),
    )


def _common(part: Part, root: Part, key: str, node: Node) -> Text:
    if key in part:
        return reading.bilingual(part[key])
    if key in root:
        return reading.bilingual(root[key])
    raise RuleError(
        "the key {name!r} is missing", where=node.where, remedy="give it here or once for the whole file", name=key
    )


def _old(version: str | None) -> str | None:
    return None if version == "old" else version


def _variable(node: Node, root: Part) -> Variable:
    part = node.keys(("id", "meaning", "status"), _OPTIONAL)
    references = reading.texts(part, "references") or reading.texts(root, "references")
    return Variable(
        id=part["id"].text(),
        program=root["program"].text(),
        kind=part["kind"].choice(KINDS) if "kind" in part else "env",
        status=part["status"].choice(STATUSES),
        meaning=reading.bilingual(part["meaning"]),
        touch=_common(part, root, "touch", node),
        verification=_common(part, root, "verification", node),
        undo=_common(part, root, "undo", node),
        where=node.where,
        grammar=reading.grammar(part["values"]) if "values" in part else Grammar("text"),
        default=_default(part["default"]) if "default" in part else (),
        since=_old(reading.text(part, "since")),
        until=reading.text(part, "until"),
        absent=reading.text(part, "absent"),
        gone=reading.text(part, "gone"),
        caution=reading.maybe_bilingual(part, "caution"),
        replaced_by=reading.text(part, "replaced_by"),
        aliases=reading.texts(part, "aliases"),
        harmless=reading.texts(part, "harmless"),
        traps=tuple(reading.trap(item) for item in part["traps"].items()) if "traps" in part else (),
        samples=tuple(_sample(item) for item in part["samples"].items()) if "samples" in part else (),
        causes=reading.texts(part, "causes"),
        references=references,
        source=reading.text(part, "source") or reading.text(root, "source"),
    )


def _namespace(node: Node) -> Namespace:
    part = node.keys(("prefix", "title", "complete", "checked", "names"), ("others",))
    return Namespace(
        prefix=part["prefix"].text(),
        title=part["title"].text(),
        complete=part["complete"].flag(),
        checked=reading.bilingual(part["checked"]),
        names=frozenset(name for line in part["names"].texts() for name in line.split()),
        others={name: reading.bilingual(value) for name, value in part["others"].mapping().items()}
        if "others" in part
        else {},
    )


class Variables:
    """All variables; an entry is unpacked when it is asked for, since a verdict needs few of the many.

    ``trees`` are (path, packed tree) of the files.
    """

    def __init__(self, trees: list[tuple[str, Any]]) -> None:
        """Index the entries; raises RuleError for a name that stands twice, ValueError for damaged trees."""
        self._entries: dict[str, tuple[str, Any, Part]] = {}
        self._names: dict[str, str] = {}
        self._built: dict[str, Variable] = {}
        self.namespaces: list[Namespace] = []
        for path, tree in trees:
            line, body = _packed_mapping(tree)
            if "names" in body:
                root = nodes.unpacked(tree, path).keys(("names",))
                self.namespaces += [_namespace(item) for item in root["names"].items()]
                continue
            head = [line, {name: value for name, value in body.items() if name != "variables"}]
            part = nodes.unpacked(head, path).keys(("program",), ("title", *_COMMON))
            if "variables" not in body:
                raise RuleError("the key {name!r} is missing", where=f"{path}:{line}", name="variables")
            for item in body["variables"][1]:
                self._add(path, item, part)

    def _add(self, path: str, item: Any, root: Part) -> None:
        line, body = _packed_mapping(item)
        name = str(body.get("id", [0, ""])[1])
        aliases = body["aliases"][1] if "aliases" in body else []
        if not isinstance(aliases, list):
            raise RuleError("{name!r} must be a list", where=f"{path}:{line}", name="aliases")
        if name in self._entries:
            other = self._entries[name]
            place = f"{other[0]}:{other[1][0]}"
            raise RuleError(
                "the variable {id!r} already exists ({place})", where=f"{path}:{line}", id=name, place=place
            )
        self._entries[name] = (path, item, root)
        self._names[name] = name
        for known in (*(str(alias[1]) for alias in aliases), name.lower()):
            self._names.setdefault(known, name)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids, in the order of the files."""
        return iter(self._entries)

    def find(self, name: str) -> Variable | None:
        """Return the entry of a name or alias; the name may be written in small letters."""
        known = self._names.get(name) or self._names.get(name.lower())
        if known is None:
            return None
        if known not in self._built:
            path, item, root = self._entries[known]
            self._built[known] = _variable(nodes.unpacked(item, path), root)
        return self._built[known]

    def all(self) -> list[Variable]:
        """Return every entry; raises RuleError for the first that is wrong."""
        return [found for name in self if (found := self.find(name)) is not None]

    def read_by_program(self, prefix: str) -> list[str]:
        """Return the names with a prefix that a program really reads."""
        return [
            name
            for name in self
            if name.startswith(prefix) and self._entries[name][1][1]["status"][1] != "unknown-to-nccl"
        ]

    def namespace(self, name: str) -> Namespace | None:
        """Return the namespace that a name belongs to: the one with the longest prefix."""
        fitting = [space for space in self.namespaces if name.startswith(space.prefix)]
        return max(fitting, key=lambda space: len(space.prefix), default=None)


def _packed_mapping(tree: Any) -> tuple[int, dict[str, Any]]:
    """Return (line, content) of a packed mapping; raises ValueError for anything else."""
    if not (isinstance(tree, list) and len(tree) == 2 and isinstance(tree[0], int) and isinstance(tree[1], dict)):
        raise ValueError("damaged tree")
    return tree[0], tree[1]


@cache
def shipped() -> Variables:
    """Return the variables that the tool ships."""
    with contextlib.suppress(ValueError, TypeError, IndexError, KeyError, AttributeError):
        return Variables(reading.packed("variables"))
    return Variables(reading.packed("variables", use_cache=False))
