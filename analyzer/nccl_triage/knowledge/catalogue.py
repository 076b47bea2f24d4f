"""Doubtful advice, error numbers, symptoms, shared steps and time-outs: reading the files below ``rules/``."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from typing import TypeVar

from nccl_triage.engine.nodes import Node
from nccl_triage.engine.schema import ROLES
from nccl_triage.errors import RuleError
from nccl_triage.knowledge import fields, files, registers
from nccl_triage.knowledge.model import (
    SEVERITIES,
    TELLS,
    URGENCIES,
    VERDICTS,
    Advice,
    Code,
    CodeTable,
    Knob,
    Owner,
    SharedStep,
    Symptom,
)
from nccl_triage.lazy_regex import lazily

_ID = lazily(r"^[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*$")
Item = TypeVar("Item")


def _id(node: Node) -> str:
    text = node.text()
    if not _ID.match(text):
        raise RuleError(
            "{text!r} is no id", where=node.where, remedy="use lower case words joined by '.', '_' or '-'", text=text
        )
    return text


def _read(folder: str, key: str, build: Callable[[Node], Item]) -> list[Item]:
    """Return what ``build`` makes of the entries below ``key`` in the files of a folder."""
    return [
        build(item) for root in files.roots(folder) if key in root.mapping() for item in root.mapping()[key].items()
    ]


def _unique(items: Iterable[Item], name: Callable[[Item], Hashable], where: Callable[[Item], str]) -> list[Item]:
    """Return the items; raises RuleError for one whose name stands twice."""
    seen: dict[Hashable, str] = {}
    found: list[Item] = []
    for item in items:
        if name(item) in seen:
            raise RuleError("{id!r} exists already ({place})", where=where(item), id=name(item), place=seen[name(item)])
        seen[name(item)] = where(item)
        found.append(item)
    return found


def _advice(node: Node) -> Advice:
    part = node.keys(
        ("id", "verdict", "claim", "why", "instead"),
        ("applies_to", "aliases", "words", "variables", "causes", "sources"),
    )
    return Advice(
        id=_id(part["id"]),
        verdict=part["verdict"].choice(VERDICTS),
        claim=fields.bilingual(part["claim"]),
        why=fields.bilingual(part["why"]),
        instead=fields.bilingual(part["instead"]),
        where=node.where,
        applies_to=fields.text(part, "applies_to"),
        aliases=fields.texts(part, "aliases"),
        words=fields.texts(part, "words"),
        variables=fields.texts(part, "variables"),
        causes=fields.texts(part, "causes"),
        sources=fields.texts(part, "sources"),
    )


def _numbers(node: Node) -> list[int]:
    """Return one number, a list of numbers, or the numbers of a range ``805-810``."""
    found: list[int] = []
    for text in node.texts():
        match = re.match(r"^(-?\d+)(?:-(\d+))?$", text)
        if match is None:
            raise RuleError("{text!r} is neither a number nor a range such as 805-810", where=node.where, text=text)
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


def _codes(node: Node, table: str, actions: Sequence[str]) -> list[Code]:
    part = node.keys(
        ("code", "name", "meaning"),
        ("text", "tells", "causes", "since", "until", "severity", "role", "kind", "action"),
    )
    return [
        Code(
            table=table,
            number=number,
            name=part["name"].text(),
            meaning=fields.bilingual(part["meaning"]),
            where=node.where,
            text=fields.text(part, "text"),
            tells=part["tells"].choice(TELLS) if "tells" in part else "either",
            causes=fields.texts(part, "causes"),
            since=fields.text(part, "since"),
            until=fields.text(part, "until"),
            severity=part["severity"].choice(SEVERITIES) if "severity" in part else None,
            role=part["role"].choice(ROLES) if "role" in part else None,  # type: ignore[arg-type]
            kind=fields.text(part, "kind"),
            action=part["action"].choice(actions) if "action" in part else None,
        )
        for number in _numbers(part["code"])
    ]


def _table(root: Node) -> CodeTable:
    part = root.keys(
        ("id", "title", "about", "codes"), ("aliases", "references", "actions", "as_of", "findings", "details")
    )
    name = _id(part["id"])
    actions = (
        {key: fields.bilingual(node) for key, node in part["actions"].mapping().items()} if "actions" in part else {}
    )
    findings = (
        {key: fields.bilingual(node) for key, node in part["findings"].mapping().items()} if "findings" in part else {}
    )
    details = part["details"].items() if "details" in part else []
    codes = [code for item in part["codes"].items() for code in _codes(item, name, tuple(actions))]
    return CodeTable(
        id=name,
        title=fields.bilingual(part["title"]),
        about=fields.bilingual(part["about"]),
        aliases=fields.texts(part, "aliases"),
        codes=tuple(_unique(codes, lambda code: code.number, lambda code: code.where)),
        where=root.where,
        references=fields.texts(part, "references"),
        actions=actions,
        as_of=fields.text(part, "as_of"),
        findings=findings,
        details=tuple(registers.load(item, tuple(actions), findings) for item in details),
    )


def _symptom(node: Node) -> Symptom:
    part = node.keys(("id", "sees", "signatures", "means", "tells", "urgency", "look"), ("causes",))
    return Symptom(
        id=_id(part["id"]),
        sees=part["sees"].text(),
        signatures=fields.texts(part, "signatures"),
        means=fields.bilingual(part["means"]),
        tells=part["tells"].choice(TELLS),
        urgency=part["urgency"].choice(URGENCIES),
        look=fields.bilingual(part["look"]),
        where=node.where,
        causes=fields.texts(part, "causes"),
    )


def _step(node: Node) -> SharedStep:
    part = node.keys(("id", "what"), ("command", "urgency"))
    return SharedStep(
        id=_id(part["id"]),
        what=fields.bilingual(part["what"]),
        where=node.where,
        command=fields.text(part, "command"),
        urgency=part["urgency"].choice(URGENCIES) if "urgency" in part else None,
    )


def _owner(node: Node) -> Owner:
    part = node.keys(("milliseconds", "who", "program"), ("knob", "versions"))
    return Owner(
        milliseconds=part["milliseconds"].integer(),
        who=fields.bilingual(part["who"]),
        program=part["program"].text(),
        knob=fields.text(part, "knob"),
        where=node.where,
        bounds=fields.bounds(part, "versions"),
    )


def _knob(node: Node) -> Knob:
    part = node.keys(("id", "program", "title", "write", "unit", "default"), ("since", "note"))
    return Knob(
        id=_id(part["id"]),
        program=part["program"].text(),
        title=part["title"].text(),
        write=part["write"].text(),
        unit=part["unit"].choice(("seconds", "minutes", "hours")),
        default=fields.bilingual(part["default"]),
        where=node.where,
        since=fields.text(part, "since"),
        note=fields.maybe_bilingual(part, "note"),
    )


@cache
def advice() -> dict[str, Advice]:
    """Return the doubtful advice by id."""
    found = _unique(_read("advice", "advice", _advice), lambda item: item.id, lambda item: item.where)
    return {item.id: item for item in found}


@cache
def tables() -> dict[str, CodeTable]:
    """Return the tables of numbers by id."""
    found = _unique(map(_table, files.roots("codes")), lambda item: item.id, lambda item: item.where)
    return {item.id: item for item in found}


@cache
def symptoms() -> dict[str, Symptom]:
    """Return the symptoms by id, in the order of the file."""
    found = _unique(_read("symptoms", "symptoms", _symptom), lambda item: item.id, lambda item: item.where)
    return {item.id: item for item in found}


@cache
def steps() -> dict[str, SharedStep]:
    """Return the steps that many causes share, by id."""
    found = _unique(_read("steps", "steps", _step), lambda item: item.id, lambda item: item.where)
    return {item.id: item for item in found}


@cache
def owners() -> tuple[Owner, ...]:
    """Return who may have set a time-out of so many milliseconds."""
    return tuple(_read("timeouts", "owners", _owner))


@cache
def knobs() -> dict[str, Knob]:
    """Return how each program's time-out of collectives is set, by id."""
    found = _unique(_read("timeouts", "knobs", _knob), lambda item: item.id, lambda item: item.where)
    return {item.id: item for item in found}
