"""What the registers behind an error number tell: rows that match a unit's name and bits, values or a reason of one.

The driver prints them in parentheses at the end of the line, for instance ``RLW_REMAP Fatal XC1 i0 Link 10 (0x00000082
0x00000040 ..)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nccl_triage.engine.nodes import Node
from nccl_triage.engine.schema import ROLES
from nccl_triage.knowledge import fields
from nccl_triage.knowledge.model import Detail
from nccl_triage.lazy_regex import lazily

_REGISTERS = lazily(r"\((0x[0-9a-fA-F]{1,8}(?:,? 0x[0-9a-fA-F]{1,8}){0,7})\)")
#: Where the reason of an event stands in the first register: bits 20 to 25.
_REASON_SHIFT, _REASON_MASK = 20, 0x3F
_BITS = 32


class Told(NamedTuple):
    """What the registers of one line tell: the rows that match, and whether every bit that is set is among theirs."""

    details: tuple[Detail, ...]
    complete: bool


def load(node: Node, actions: Sequence[str], findings: Iterable[str]) -> Detail:
    """Return one row."""
    part = node.keys(("code", "finding"), ("units", "register", "bits", "values", "reasons", "action", "role"))
    if sum(key in part for key in ("bits", "values", "reasons")) > 1:
        raise node.fail("a row has 'bits', 'values' or 'reasons', not several")
    return Detail(
        code=part["code"].integer(),
        units=frozenset(fields.texts(part, "units")),
        register=part["register"].integer() if "register" in part else 1,
        bits=_mask(part["bits"]) if "bits" in part else 0,
        values=_numbers(part, "values"),
        reasons=_numbers(part, "reasons"),
        action=part["action"].choice(actions) if "action" in part else None,
        role=part["role"].choice(ROLES) if "role" in part else None,  # type: ignore[arg-type]
        finding=part["finding"].choice(findings),
    )


def _mask(node: Node) -> int:
    mask = 0
    for item in node.items():
        bit = _number(item)
        if bit >= _BITS:
            raise item.fail("a register has bits 0 to {last}", last=_BITS - 1)
        mask |= 1 << bit
    return mask


def _number(node: Node) -> int:
    text = node.text()
    if not (text.isascii() and text.isdigit()):
        raise node.fail("expected a number, found {text!r}", text=text)
    return int(text)


def _numbers(part: fields.Part, key: str) -> tuple[int, ...]:
    return tuple(_number(item) for item in part[key].items()) if key in part else ()


def read(details: Iterable[Detail], text: str) -> Told:
    """Return what the rows of one number say of a line."""
    found = _REGISTERS.search(text)
    if found is None:
        return Told((), False)
    registers = [int(number, 16) for number in found[1].replace(",", " ").split()]
    words = set(text[: found.start()].replace(",", " ").split())
    told = tuple(row for row in details if (not row.units or row.units & words) and _matches(row, registers))
    known = dict.fromkeys(range(1, len(registers) + 1), 0)
    for row in told:
        known[row.register] = known.get(row.register, 0) | row.bits
    complete = all(not value & ~known[number] for number, value in enumerate(registers, 1))
    return Told(told, complete)


def _matches(row: Detail, registers: Sequence[int]) -> bool:
    if not 1 <= row.register <= len(registers):
        return False
    value = registers[row.register - 1]
    if row.bits:
        return bool(value & row.bits)
    if row.reasons:
        return value >> _REASON_SHIFT & _REASON_MASK in row.reasons
    return not row.values or value in row.values
