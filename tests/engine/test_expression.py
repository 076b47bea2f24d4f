"""Conditions: what they can say, and that nothing else gets through."""

from __future__ import annotations

import pytest

from nccl_triage.engine.expression import Evaluator, Missing, parse
from nccl_triage.errors import RuleError


def missing() -> int:
    raise Missing("x")


FUNCTIONS = {"length": len, "missing": missing, "upper": str.upper}


def truth(source: str, **fields: object) -> bool:
    return Evaluator(FUNCTIONS).truth(parse(source, "t:1", set(FUNCTIONS)), fields)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("256 != 2 * 18 * 7", True),
        ("256 == 2 * 16 * 8", True),
        ("252 % 7 == 0 and 252 / 2 == 126", True),
        ("1 < 2 < 3", True),
        ("1 < 3 < 2", False),
        ("'a' in ['a', 'b']", True),
        ("'a' not in 'bcd'", True),
        ("not false", True),
        ("3 if true else 0", True),
        ("length('abc') == 3 or missing() == 1", True),
        ("missing() == 1 or length('abc') == 3", True),
        ("missing() == 1", False),
        ("not missing()", True),
        ("1 / 0 == 1", False),
        ("none == none", True),
        ("-3 < 0", True),
    ],
)
def test_values(source: str, expected: bool) -> None:
    assert truth(source) is expected


def test_fields_of_an_event() -> None:
    assert truth("f.rank == '3' and f.peer == none", rank="3")
    assert not truth("f.rank > 2", rank="3")


@pytest.mark.parametrize(
    "source",
    [
        "__import__('os')", "open('/etc/passwd')", "(1).__class__", "f.__class__", "[x for x in [1]]", "lambda: 1",
        "upper.__globals__", "f['a']", "x", "'a'.upper()", "length(*[1])", "upper(x='a')", "1 ** 9", "a := 1", "f'{1}'", "1 +",
        "1 << 999999999", "~1",
    ],
)  # fmt: skip
def test_everything_else_is_refused(source: str) -> None:
    with pytest.raises(RuleError):
        parse(source, "t:1", set(FUNCTIONS))


def test_long_and_deep_sources_are_refused_not_crashing() -> None:
    with pytest.raises(RuleError):
        parse("1 + " * 5000 + "1", "t:1")
    for deep in (
        "(" * 900 + "1" + ")" * 900,
        "-" * 1900 + "1",
        "1+" * 900 + "1",
        "not " * 400 + "true",
        "[" * 150 + "]" * 150,
    ):
        with pytest.raises(RuleError):
            parse(deep, "t:1")


@pytest.mark.parametrize(
    "source",
    [
        "'a' * 99999999 == 'b'", "[0] * 9999999999", "9999999999 * [0]", "(1, 2) * 99999999", "[[0] * 9] * 9", "'%999999999d' % 1",
        "[0] + [1]",
    ],
)  # fmt: skip
def test_texts_and_lists_are_no_operands(source: str) -> None:
    with pytest.raises(RuleError, match="arithmetic is for numbers"):
        parse(source, "t:1")


@pytest.mark.parametrize("operand", ["f.text", "many()", "([0] if true else 1)", "(f.text if true else 1)"])
@pytest.mark.parametrize("operator", ["* 99999999999", "% 1", "+ f.text", "+ many()"])
def test_arithmetic_cannot_blow_up_memory(operand: str, operator: str) -> None:
    evaluator = Evaluator({"many": lambda: [0] * 9})
    source = f"{operand} {operator}"
    assert evaluator.value(parse(source, "t:1"), {"text": "%99999999999d"}) is None
    assert evaluator.truth(parse(f"length({source}) >= 0 or true", "t:1"))
