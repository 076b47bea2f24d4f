"""The entries of the knowledge as named tuples (quicker to define than data classes, and a verdict waits for it).

Every text for people is a mapping ``en``, ``zh``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from nccl_triage.engine.schema import PlatformCommand
from nccl_triage.observations.event import Role

Text = dict[str, str]
_NOTHING: Mapping[str, str] = MappingProxyType({})

#: What a variable is for. ``diagnosis-only``: a test, not a fix; it must not stay in scripts.
STATUSES = ("tuning", "diagnosis-only", "legacy", "unknown-to-nccl", "set-by-launcher")
KINDS = ("env", "flag")
VERDICTS = ("right", "partly", "wrong", "unsupported", "dangerous", "no-op")
#: How much hurry a step or a symptom deserves.
URGENCIES = ("high", "medium", "low")
#: How bad a numbered error is: a reset or a repair is due, work is lost, it foretells something, it only informs.
SEVERITIES = ("fatal", "error", "warning", "notice")
#: What a message says of the rank that prints it.
TELLS = ("cause", "victim", "either", "nothing")
Level = Literal["note", "warn"]
LEVELS: tuple[Level, ...] = ("note", "warn")
#: How a remark came about; the samples of a variable name one of these under ``finds``.
FINDINGS = ("unknown", "outside", "version", "legacy", "trap", "default", "debugging")
GRAMMARS = ("switch", "truth", "integer", "number", "one-of", "list-of", "interfaces", "devices", "path", "text")


class Grammar(NamedTuple):
    """Which values a program understands; ``least``, ``most`` and ``also`` belong to numbers, ``of`` to words."""

    kind: str
    of: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    also: tuple[str, ...] = ()
    unit: str | None = None


class Bound(NamedTuple):
    """A condition on the version of one program, e.g. ``nccl >= 2.27``."""

    program: str
    operator: str
    version: str


class Trap(NamedTuple):
    """A value that does not do what people expect of it; all conditions given must hold.

    ``matches`` is searched in the value, ``below`` and ``above`` compare it as a number, ``missing`` names a variable
    that the same environment does not hold.
    """

    says: Text
    level: Level
    matches: re.Pattern[str] | None = None
    below: float | None = None
    above: float | None = None
    missing: str | None = None
    bounds: tuple[Bound, ...] = ()


class ValueSample(NamedTuple):
    """A value with what ``judge`` must find in it: one of ``FINDINGS``, or nothing."""

    value: str
    finds: str | None
    versions: Mapping[str, str] = _NOTHING
    environment: Mapping[str, str] = _NOTHING


class Variable(NamedTuple):
    """A variable of the environment or an option of a launcher.

    ``default`` is the history of the default: (first version with it, value), the oldest first, whose version is
    empty. ``harmless`` values of a variable for diagnosis need no remark. Where not every version was read, ``absent``
    is the last one before ``since``, and ``gone`` the first one after ``until``, that was.
    """

    id: str
    program: str
    kind: str
    status: str
    meaning: Text
    touch: Text
    verification: Text
    undo: Text
    where: str
    grammar: Grammar
    default: tuple[tuple[str, str], ...] = ()
    since: str | None = None
    until: str | None = None
    absent: str | None = None
    gone: str | None = None
    caution: Text | None = None
    replaced_by: str | None = None
    aliases: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()
    traps: tuple[Trap, ...] = ()
    samples: tuple[ValueSample, ...] = ()
    causes: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    source: str | None = None


class Namespace(NamedTuple):
    """The names that a program reads besides those with an entry of their own.

    ``complete``: a name with the prefix that is not among them is unknown to the program. ``others`` are prefixes of
    names that plug-ins and packages read.
    """

    prefix: str
    title: str
    complete: bool
    checked: Text
    names: frozenset[str]
    others: dict[str, Text]


class Advice(NamedTuple):
    """A claim that people repeat, and what is true of it."""

    id: str
    verdict: str
    claim: Text
    why: Text
    instead: Text
    where: str
    applies_to: str | None = None
    aliases: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


class Code(NamedTuple):
    """A number that a library prints, with its name and what it means for a triage.

    ``role`` and ``kind`` settle what a line with the number counts for (see ``diagnosis.coded``); ``action`` is one of
    the actions of its table.
    """

    table: str
    number: int
    name: str
    meaning: Text
    where: str
    text: str | None = None
    tells: str = "either"
    causes: tuple[str, ...] = ()
    until: str | None = None
    since: str | None = None
    severity: str | None = None
    role: Role | None = None
    kind: str | None = None
    action: str | None = None


class Detail(NamedTuple):
    """What a number tells more closely where a unit's name stands in the line and a register holds something.

    ``bits`` is a mask of which one bit must be set, ``values`` are values of the register (counted from 1), ``reasons``
    those of bits 20 to 25; none of them: any value. ``finding`` is one of the findings of the table.
    """

    code: int
    finding: str
    units: frozenset[str] = frozenset()
    register: int = 1
    bits: int = 0
    values: tuple[int, ...] = ()
    reasons: tuple[int, ...] = ()
    action: str | None = None
    role: Role | None = None


class CodeTable(NamedTuple):
    """One table of numbers: ``aliases`` are the words that may stand before the number on the command line.

    ``actions`` says what is done about a number; ``as_of`` is the day of the source that the numbers are from.
    ``details`` are what registers behind a number tell, ``findings`` the texts of it.
    """

    id: str
    title: Text
    about: Text
    aliases: tuple[str, ...]
    codes: tuple[Code, ...]
    where: str
    references: tuple[str, ...] = ()
    actions: Mapping[str, Text] = MappingProxyType({})
    as_of: str | None = None
    findings: Mapping[str, Text] = MappingProxyType({})
    details: tuple[Detail, ...] = ()


class Symptom(NamedTuple):
    """What people see first, and what it really means; ``signatures`` are the messages, ``sees`` one of them."""

    id: str
    sees: str
    signatures: tuple[str, ...]
    means: Text
    tells: str
    urgency: str
    look: Text
    where: str
    causes: tuple[str, ...] = ()


class Problem(NamedTuple):
    """What people notice before they have read a log; ``words`` are what they type, ``leads`` the entries to go on with."""

    id: str
    title: Text
    words: tuple[str, ...]
    first: Text
    leads: tuple[str, ...]
    where: str
    commands: tuple[str, ...] = ()


class SharedStep(NamedTuple):
    """A step that the stages of many causes name."""

    id: str
    what: Text
    where: str
    command: PlatformCommand | None = None
    urgency: str | None = None


class Owner(NamedTuple):
    """Who may have set a timeout of so many milliseconds; ``knob`` is the id of the entry that changes it."""

    milliseconds: int
    who: Text
    program: str
    knob: str | None
    where: str
    bounds: tuple[Bound, ...] = ()


class Knob(NamedTuple):
    """How a program's timeout of collectives is set: ``write`` holds ``{seconds}``, ``{minutes}`` or ``{hours}``."""

    id: str
    program: str
    title: str
    write: str
    unit: str
    default: Text
    where: str
    since: str | None = None
    note: Text | None = None


class Remark(NamedTuple):
    """A plain word on one variable of a job's environment."""

    name: str
    value: str
    level: Level
    kind: str
    says: Text


Data = dict[str, Any]


def pair(name: str, text: Text | None) -> Data:
    """Return a text under its two keys."""
    return {name: text["en"] if text else None, f"{name}_zh": text["zh"] if text else None}
