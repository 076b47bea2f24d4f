"""Tell whether a filter can select a line of which only this much is known: which fields it lacks.

A filter (``where`` of a row) is evaluated with the missing fields as none and everything else as unknown: "and" with one
part that does not hold is false whatever the others are.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from nccl_triage.engine.expression import Evaluator, Expression, Missing
from nccl_triage.engine.functions import FUNCTIONS, VALUE_FUNCTIONS
from nccl_triage.engine.schema import RuleSet

#: Fields that every line may have, whatever its signature.
OF_EVERY_LINE = frozenset(("text", "level", "program", "context_rank", "context_host"))
#: Functions of an address, none of which holds without one.
_OF_ADDRESSES = ("is_loopback", "is_private", "is_link_local", "in_network")


class _Unknown(Exception):
    """Raised if the value of a part depends on what is not known."""


class _PossibleFields(Mapping[str, Any]):
    """The fields of a line: those that it may have are unknown, the others are missing."""

    def __init__(self, possible: Collection[str]) -> None:
        self._possible = OF_EVERY_LINE.union(possible)

    def __getitem__(self, name: str) -> Any:
        if name in self._possible:
            raise _Unknown
        return None

    def __iter__(self) -> Iterator[str]:
        return iter(self._possible)

    def __len__(self) -> int:
        return len(self._possible)


class _Partial(Evaluator):
    """An evaluator for which "and" and "or" may be known although a part is not."""

    def _boolean(self, node: ast.BoolOp, fields: Mapping[str, Any]) -> Any:
        wanted, unknown = isinstance(node.op, ast.Or), False
        for operand in node.values:
            try:
                if bool(self._value_or_false(operand, fields)) is wanted:
                    return wanted
            except _Unknown:
                unknown = True
        if unknown:
            raise _Unknown
        return not wanted


def may_select(where: Expression, possible: Collection[str], rules: RuleSet) -> bool:
    """Tell whether a filter can select a line that has no other fields than these."""

    def words(name: str) -> tuple[str, ...]:
        if name not in rules.words:
            raise Missing(name)
        return rules.words[name].texts

    def premise(name: str) -> bool:
        if name not in rules.premises:
            raise Missing(name)
        return evaluator.within(rules.premises[name].when)

    known: dict[str, Callable[..., Any]] = {**VALUE_FUNCTIONS, "words": words, "premise": premise}
    evaluator = _Partial({name: known.get(name, _of_address(name)) for name in FUNCTIONS})
    try:
        return evaluator.truth(where, _PossibleFields(possible))
    except _Unknown:
        return True


def _of_address(name: str) -> Callable[..., Any]:
    def function(*arguments: Any) -> Any:
        if name in _OF_ADDRESSES and arguments[0] is None:
            return False
        raise _Unknown

    return function
