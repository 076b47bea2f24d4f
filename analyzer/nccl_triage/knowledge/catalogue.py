"""Doubtful advice, error numbers and their registers, symptoms, shared steps and timeouts: the files below ``rules/``."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from typing import NamedTuple, TypeVar

from nccl_triage.engine.fields import command
from nccl_triage.engine.nodes import Node
from nccl_triage.engine.schema import ROLES, PlatformCommand
from nccl_triage.errors import RuleError
from nccl_triage.knowledge import reading
from nccl_triage.knowledge.entries import (
    SEVERITIES,
    TELLS,
    URGENCIES,
    VERDICTS,
    Advice,
    Code,
    CodeTable,
    Detail,
    Knob,
    Owner,
    Problem,
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
            "{text!r} is not an id",
            where=node.where,
            remedy="use lower case words joined by '.', '_' or '-'",
            text=text,
        )
    return text


def _read(folder: str, key: str, build: Callable[[Node], Item]) -> list[Item]:
    """Return what ``build`` makes of the entries below ``key`` in the files of a folder."""
    return [
        build(item) for root in reading.roots(folder) if key in root.mapping() for item in root.mapping()[key].items()
    ]


def _unique(items: Iterable[Item], name: Callable[[Item], Hashable], where: Callable[[Item], str]) -> list[Item]:
    """Return the items; raises RuleError for one whose name stands twice."""
    seen: dict[Hashable, str] = {}
    found: list[Item] = []
    for item in items:
        if name(item) in seen:
            raise RuleError("{id!r} already exists ({place})", where=where(item), id=name(item), place=seen[name(item)])
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
        claim=reading.bilingual(part["claim"]),
        why=reading.bilingual(part["why"]),
        instead=reading.bilingual(part["instead"]),
        where=node.where,
        applies_to=reading.text(part, "applies_to"),
        aliases=reading.texts(part, "aliases"),
        words=reading.texts(part, "words"),
        variables=reading.texts(part, "variables"),
        causes=reading.texts(part, "causes"),
        sources=reading.texts(part, "sources"),
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
            meaning=reading.bilingual(part["meaning"]),
            where=node.where,
            text=reading.text(part, "text"),
            tells=part["tells"].choice(TELLS) if "tells" in part else "either",
            causes=reading.texts(part, "causes"),
            since=reading.text(part, "since"),
            until=reading.text(part, "until"),
            severity=part["severity"].choice(SEVERITIES) if "severity" in part else None,
            role=part["role"].choice(ROLES) if "role" in part else None,  # type: ignore[arg-type]
            kind=reading.text(part, "kind"),
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
        {key: reading.bilingual(node) for key, node in part["actions"].mapping().items()} if "actions" in part else {}
    )
    findings = (
        {key: reading.bilingual(node) for key, node in part["findings"].mapping().items()} if "findings" in part else {}
    )
    details = part["details"].items() if "details" in part else []
    codes = [code for item in part["codes"].items() for code in _codes(item, name, tuple(actions))]
    return CodeTable(
        id=name,
        title=reading.bilingual(part["title"]),
        about=reading.bilingual(part["about"]),
        aliases=reading.texts(part, "aliases"),
        codes=tuple(_unique(codes, lambda code: code.number, lambda code: code.where)),
        where=root.where,
        references=reading.texts(part, "references"),
        actions=actions,
        as_of=reading.text(part, "as_of"),
        findings=findings,
        details=tuple(_detail(item, tuple(actions), findings) for item in details),
    )


def _symptom(node: Node) -> Symptom:
    part = node.keys(("id", "sees", "signatures", "means", "tells", "urgency", "look"), ("causes",))
    return Symptom(
        id=_id(part["id"]),
        sees=part["sees"].text(),
        signatures=reading.texts(part, "signatures"),
        means=reading.bilingual(part["means"]),
        tells=part["tells"].choice(TELLS),
        urgency=part["urgency"].choice(URGENCIES),
        look=reading.bilingual(part["look"]),
        where=node.where,
        causes=reading.texts(part, "causes"),
    )


def _problem(node: Node) -> Problem:
    part = node.keys(("id", "title", "words", "first", "leads"), ("commands",))
    return Problem(
        id=_id(part["id"]),
        title=reading.bilingual(part["title"]),
        words=reading.texts(part, "words"),
        first=reading.bilingual(part["first"]),
        leads=reading.texts(part, "leads"),
        where=node.where,
        commands=reading.texts(part, "commands"),
    )


def _step(node: Node) -> SharedStep:
    part = node.keys(("id", "what"), ("command", "urgency"))
    return SharedStep(
        id=_id(part["id"]),
        what=reading.bilingual(part["what"]),
        where=node.where,
        command=command(part["command"]) if "command" in part else None,
        urgency=part["urgency"].choice(URGENCIES) if "urgency" in part else None,
    )


def _owner(node: Node) -> Owner:
    part = node.keys(("milliseconds", "who", "program"), ("knob", "versions"))
    return Owner(
        milliseconds=part["milliseconds"].integer(),
        who=reading.bilingual(part["who"]),
        program=part["program"].text(),
        knob=reading.text(part, "knob"),
        where=node.where,
        bounds=reading.bounds(part, "versions"),
    )


def _knob(node: Node) -> Knob:
    part = node.keys(("id", "program", "title", "write", "unit", "default"), ("since", "note"))
    return Knob(
        id=_id(part["id"]),
        program=part["program"].text(),
        title=part["title"].text(),
        write=part["write"].text(),
        unit=part["unit"].choice(("seconds", "minutes", "hours")),
        default=reading.bilingual(part["default"]),
        where=node.where,
        since=reading.text(part, "since"),
        note=reading.maybe_bilingual(part, "note"),
    )


@cache
def advice() -> dict[str, Advice]:
    """Return the doubtful advice by id."""
    found = _unique(_read("advice", "advice", _advice), lambda item: item.id, lambda item: item.where)
    return {item.id: item for item in found}


@cache
def tables() -> dict[str, CodeTable]:
    """Return the tables of numbers by id."""
    found = _unique(map(_table, reading.roots("codes")), lambda item: item.id, lambda item: item.where)
    return {item.id: item for item in found}


@cache
def symptoms() -> dict[str, Symptom]:
    """Return the symptoms by id, in the order of the file."""
    found = _unique(_read("symptoms", "symptoms", _symptom), lambda item: item.id, lambda item: item.where)
    return {item.id: item for item in found}


@cache
def problems() -> dict[str, Problem]:
    """Return what people notice first by id, in the order of the file."""
    found = _unique(_read("symptoms", "problems", _problem), lambda item: item.id, lambda item: item.where)
    return {item.id: item for item in found}


@cache
def steps() -> dict[str, SharedStep]:
    """Return the steps that many causes share, by id."""
    found = _unique(_read("steps", "steps", _step), lambda item: item.id, lambda item: item.where)
    return {item.id: item for item in found}


@cache
def finders() -> dict[str, PlatformCommand]:
    """Return the words in capitals that stand for names in commands, each with the command that finds the name."""
    return {
        word: command(node)
        for root in reading.roots("steps")
        if "finders" in root.mapping()
        for word, node in root.mapping()["finders"].mapping().items()
    }


@cache
def owners() -> tuple[Owner, ...]:
    """Return who may have set a timeout of so many milliseconds."""
    return tuple(_read("timeouts", "owners", _owner))


@cache
def knobs() -> dict[str, Knob]:
    """Return how each program's timeout of collectives is set, by id."""
    found = _unique(_read("timeouts", "knobs", _knob), lambda item: item.id, lambda item: item.where)
    return {item.id: item for item in found}


_REGISTERS = lazily(r"\((0x[0-9a-fA-F]{1,8}(?:,? 0x[0-9a-fA-F]{1,8}){0,7})\)")
#: Where the reason of an event stands in the first register: bits 20 to 25.
_REASON_SHIFT, _REASON_MASK = 20, 0x3F
_BITS = 32


class RegisterReading(NamedTuple):
    """The meaning of the registers in a line: the rows that match, and whether they explain every bit that is set."""

    details: tuple[Detail, ...]
    complete: bool


def _detail(node: Node, actions: Sequence[str], findings: Iterable[str]) -> Detail:
    """Return one row of the registers of an error number."""
    part = node.keys(("code", "finding"), ("units", "register", "bits", "values", "reasons", "action", "role"))
    if sum(key in part for key in ("bits", "values", "reasons")) > 1:
        raise node.fail("a row has 'bits', 'values' or 'reasons', not several")
    return Detail(
        code=part["code"].integer(),
        units=frozenset(reading.texts(part, "units")),
        register=part["register"].integer() if "register" in part else 1,
        bits=_mask(part["bits"]) if "bits" in part else 0,
        values=_register_numbers(part, "values"),
        reasons=_register_numbers(part, "reasons"),
        action=part["action"].choice(actions) if "action" in part else None,
        role=part["role"].choice(ROLES) if "role" in part else None,  # type: ignore[arg-type]
        finding=part["finding"].choice(findings),
    )


def _mask(node: Node) -> int:
    mask = 0
    for item in node.items():
        bit = _register_number(item)
        if bit >= _BITS:
            raise item.fail("a register has bits 0 to {last}", last=_BITS - 1)
        mask |= 1 << bit
    return mask


def _register_number(node: Node) -> int:
    text = node.text()
    if not (text.isascii() and text.isdigit()):
        raise node.fail("expected a number, found {text!r}", text=text)
    return int(text)


def _register_numbers(part: reading.Part, key: str) -> tuple[int, ...]:
    return tuple(_register_number(item) for item in part[key].items()) if key in part else ()


def read_registers(details: Iterable[Detail], text: str) -> RegisterReading:
    """Return the meaning of the registers in a line by the rows of its error number."""
    found = _REGISTERS.search(text)
    if found is None:
        return RegisterReading((), False)
    registers = [int(number, 16) for number in found[1].replace(",", " ").split()]
    words = set(text[: found.start()].replace(",", " ").split())
    told = tuple(row for row in details if (not row.units or row.units & words) and _matches(row, registers))
    known = dict.fromkeys(range(1, len(registers) + 1), 0)
    for row in told:
        known[row.register] = known.get(row.register, 0) | row.bits
    complete = all(not value & ~known[number] for number, value in enumerate(registers, 1))
    return RegisterReading(told, complete)


def _matches(row: Detail, registers: Sequence[int]) -> bool:
    if not 1 <= row.register <= len(registers):
        return False
    value = registers[row.register - 1]
    if row.bits:
        return bool(value & row.bits)
    if row.reasons:
        return value >> _REASON_SHIFT & _REASON_MASK in row.reasons
    return not row.values or value in row.values
