"""The functions that conditions may call, and the meaning of those that only compute with values.

A premise of a signature knows nothing but one line, so it may call those alone. ``diagnosis.conditions`` gives the
others their meaning: what was seen in the log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from math import prod
from typing import Any

from nccl_triage.engine.expression import Missing

#: name -> what it returns (rules/README.md is checked against this table).
DESCRIPTIONS: dict[str, str] = {
    "has": "has(SIG, ..): a line of one of these was seen",
    "count": "count(SIG, ..): how often they were seen",
    "ranks": "ranks(SIG, ..): the list of global ranks that printed one of them",
    "hosts": "hosts(SIG, ..): the list of hosts that printed one of them",
    "values": "values(SIG, FIELD): the distinct values of a field, as texts",
    "numbers": "numbers(SIG, FIELD): the distinct values of a field, as numbers",
    "value": "value(SIG, FIELD): the field of the first event",
    "number": "number(SIG, FIELD): the field of the first event, as a number",
    "before": "before(SIG1, SIG2): the first SIG1 precedes the first SIG2 (or SIG2 is absent)",
    "leads": "leads(SIG, ..): the first of them precedes every event of role cascade",
    "all_ranks": "all_ranks(SIG, ..): every known rank of the job printed one of them",
    "premise": "premise(NAME): a condition of rules/terms holds",
    "words": "words(NAME): a list of words of rules/terms, for contains, starts and in",
    "env": "env(NAME): the value of an environment variable that the log shows, or none",
    "version": "version(PROGRAM): the version that the log shows (nccl, torch, cuda, driver, vllm, ..), or none",
    "older": "older(A, B): version A is older than version B",
    "fact": "fact(NAME): a derived fact (rules/README.md), or none when it cannot be derived",
    "on": "on(PLATFORM, ..): the job runs on one of these: its scheduler, its accelerators, one-host, several-hosts, alive",
    "num": "num(TEXT): the text as a number",
    "size": "size(TEXT): an amount of memory in bytes: '1.5 GiB' is 1610612736",
    "length": "length(X): the number of elements of a list or characters of a text",
    "product": "product(A, B, ..): the product of numbers",
    "smallest": "smallest(LIST): the smallest number of a list",
    "largest": "largest(LIST): the largest number of a list",
    "lower": "lower(TEXT): the text in lower case",
    "starts": "starts(TEXT, PREFIX, ..): the text starts with one of the prefixes",
    "contains": "contains(TEXT, PART, ..): the text contains one of the parts",
    "in_network": "in_network(ADDRESS, CIDR, ..): the address lies in one of the networks",
    "is_loopback": "is_loopback(ADDRESS)",
    "is_private": "is_private(ADDRESS): a private, link-local or loopback address",
    "is_link_local": "is_link_local(ADDRESS)",
    "same_network": "same_network(ADDRESSES, PREFIX_LENGTH): all lie in one network of that length",
}
FUNCTIONS: frozenset[str] = frozenset(DESCRIPTIONS)
#: An amount as allocators print it.
_AMOUNT = re.compile(r"(\d{1,15}(?:\.\d{1,9})?) ?([bKMGTP])(?:ytes|i?B)")


def _each(parts: Iterable[str | tuple[str, ...]]) -> Iterable[str]:
    """Yield the texts of arguments that are texts or lists of texts."""
    for part in parts:
        yield from (part,) if isinstance(part, str) else part


def _num(text: Any) -> float:
    if text is None:
        raise Missing("number")
    return float(int(text, 16)) if isinstance(text, str) and text.startswith("0x") else float(text)


def _size(text: Any) -> float:
    match = _AMOUNT.fullmatch(str(text))
    if match is None:
        raise Missing("size")
    return float(match[1]) * 1024.0 ** ("bKMGTP".index(match[2]))


def _length(value: Any) -> int:
    return 0 if value is None else len(value)


def _product(*numbers: Any) -> float:
    return prod(float(number) for number in numbers)


def _smallest(values: Any) -> float:
    return min(float(value) for value in values)


def _largest(values: Any) -> float:
    return max(float(value) for value in values)


def _lower(text: Any) -> str:
    return "" if text is None else str(text).lower()


def _starts(text: Any, *prefixes: str | tuple[str, ...]) -> bool:
    return text is not None and str(text).startswith(tuple(_each(prefixes)))


def _contains(text: Any, *parts: str | tuple[str, ...]) -> bool:
    return text is not None and any(part in str(text) for part in _each(parts))


#: name -> function, for those that only compute with values.
VALUE_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "num": _num,
    "size": _size,
    "length": _length,
    "product": _product,
    "smallest": _smallest,
    "largest": _largest,
    "lower": _lower,
    "starts": _starts,
    "contains": _contains,
}
