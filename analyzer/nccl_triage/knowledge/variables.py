"""Variables and options: reading ``rules/variables``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from nccl_triage.engine.nodes import Node
from nccl_triage.errors import RuleError
from nccl_triage.knowledge import fields, files
from nccl_triage.knowledge.fields import Part
from nccl_triage.knowledge.model import FINDINGS, KINDS, STATUSES, Grammar, Namespace, Sample, Text, Variable

_OPTIONAL = (
    "kind", "values", "default", "since", "until", "absent", "gone", "caution", "touch", "verification", "undo", "replaced_by", "aliases",
    "harmless", "traps", "samples", "causes", "references", "source",
)  # fmt: skip
#: What a file may say once for all its entries.
_COMMON = ("touch", "verification", "undo", "references", "source")


def _default(node: Node) -> tuple[tuple[str, str], ...]:
    """Return the history of a default: one value, or version -> value with ``old`` for the oldest."""
    if not isinstance(node.value, dict):
        return (("", node.text()),)
    return tuple(("" if name == "old" else name, value.text()) for name, value in node.mapping().items())


def _sample(node: Node) -> Sample:
    part = node.keys(("value",), ("finds", "versions", "with"))
    return Sample(
        value=part["value"].text(),
        finds=part["finds"].choice(FINDINGS) if "finds" in part else None,
        versions=fields.mapping(part, "versions"),
        environment=fields.mapping(part, "with"),
    )


def _common(part: Part, root: Part, key: str, node: Node) -> Text:
    if key in part:
        return fields.bilingual(part[key])
    if key in root:
        return fields.bilingual(root[key])
    raise RuleError(
        "the key {name!r} is missing", where=node.where, remedy="give it here or once for the whole file", name=key
    )


def _old(version: str | None) -> str | None:
    return None if version == "old" else version


def _variable(node: Node, root: Part) -> Variable:
    part = node.keys(("id", "meaning", "status"), _OPTIONAL)
    references = fields.texts(part, "references") or fields.texts(root, "references")
    return Variable(
        id=part["id"].text(),
        program=root["program"].text(),
        kind=part["kind"].choice(KINDS) if "kind" in part else "env",
        status=part["status"].choice(STATUSES),
        meaning=fields.bilingual(part["meaning"]),
        touch=_common(part, root, "touch", node),
        verification=_common(part, root, "verification", node),
        undo=_common(part, root, "undo", node),
        where=node.where,
        grammar=fields.grammar(part["values"]) if "values" in part else Grammar("text"),
        default=_default(part["default"]) if "default" in part else (),
        since=_old(fields.text(part, "since")),
        until=fields.text(part, "until"),
        absent=fields.text(part, "absent"),
        gone=fields.text(part, "gone"),
        caution=fields.maybe_bilingual(part, "caution"),
        replaced_by=fields.text(part, "replaced_by"),
        aliases=fields.texts(part, "aliases"),
        harmless=fields.texts(part, "harmless"),
        traps=tuple(fields.trap(item) for item in part["traps"].items()) if "traps" in part else (),
        samples=tuple(_sample(item) for item in part["samples"].items()) if "samples" in part else (),
        causes=fields.texts(part, "causes"),
        references=references,
        source=fields.text(part, "source") or fields.text(root, "source"),
    )


def _namespace(node: Node) -> Namespace:
    part = node.keys(("prefix", "title", "complete", "checked", "names"), ("others",))
    return Namespace(
        prefix=part["prefix"].text(),
        title=part["title"].text(),
        complete=part["complete"].flag(),
        checked=fields.bilingual(part["checked"]),
        names=frozenset(name for line in part["names"].texts() for name in line.split()),
        others={name: fields.bilingual(value) for name, value in part["others"].mapping().items()}
        if "others" in part
        else {},
    )


class Variables:
    """All variables; an entry is built when it is asked for, since a verdict needs few of them."""

    def __init__(self, roots: list[Node]) -> None:
        """Index the entries of the files; raises RuleError for a name that stands twice."""
        self._nodes: dict[str, tuple[Node, Part]] = {}
        self._names: dict[str, str] = {}
        self._built: dict[str, Variable] = {}
        self.namespaces: list[Namespace] = []
        for root in roots:
            if "names" in root.mapping():
                self.namespaces += [_namespace(item) for item in root.keys(("names",))["names"].items()]
                continue
            part = root.keys(("program", "variables"), ("title", *_COMMON))
            for item in part["variables"].items():
                self._add(item, part)

    def _add(self, item: Node, root: Part) -> None:
        name = item.mapping()["id"].text() if "id" in item.mapping() else ""
        aliases = item.mapping()["aliases"].texts() if "aliases" in item.mapping() else []
        if name in self._nodes:
            raise RuleError(
                "the variable {id!r} exists already ({place})",
                where=item.where,
                id=name,
                place=self._nodes[name][0].where,
            )
        self._nodes[name] = (item, root)
        for known in (name, *aliases):
            self._names.setdefault(known.lower(), name)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids, in the order of the files."""
        return iter(self._nodes)

    def find(self, name: str) -> Variable | None:
        """Return the entry of a name or alias, whatever its case."""
        known = self._names.get(name.lower())
        if known is None:
            return None
        if known not in self._built:
            self._built[known] = _variable(*self._nodes[known])
        return self._built[known]

    def all(self) -> list[Variable]:
        """Return every entry; raises RuleError for the first that is wrong."""
        return [found for name in self if (found := self.find(name)) is not None]

    def read_by_program(self, prefix: str) -> list[str]:
        """Return the names with a prefix that a program really reads."""
        return [
            name
            for name, (node, _) in self._nodes.items()
            if name.startswith(prefix) and node.mapping()["status"].text() != "unknown-to-nccl"
        ]

    def namespace(self, name: str) -> Namespace | None:
        """Return the namespace that a name belongs to: the one with the longest prefix."""
        fitting = [space for space in self.namespaces if name.startswith(space.prefix)]
        return max(fitting, key=lambda space: len(space.prefix), default=None)


@cache
def shipped() -> Variables:
    """Return the variables that the tool ships."""
    return Variables(files.roots("variables"))
