"""Which values a grammar takes, and how it is said."""

from __future__ import annotations

import pytest

from nccl_triage.knowledge import values
from nccl_triage.knowledge.model import Grammar

PORT = Grammar("integer", least=1, most=65535, also=("auto",))


@pytest.mark.parametrize(
    ("grammar", "value", "fits"),
    [
        (Grammar("switch"), "1", True),
        (Grammar("switch"), "0x1", True),
        (Grammar("switch"), "true", False),
        (Grammar("switch"), "2", False),
        (Grammar("truth"), "True", True),
        (Grammar("truth"), "off", True),
        (Grammar("truth"), "2", False),
        (PORT, "29500", True),
        (PORT, "AUTO", True),
        (PORT, "0", False),
        (PORT, "65536", False),
        (PORT, "1.5", False),
        (PORT, "", False),
        (PORT, "nan", False),
        (PORT, "inf", False),
        (Grammar("number", least=0, most=1), "0.9", True),
        (Grammar("number", least=0, most=1), "90", False),
        (Grammar("integer"), "4194304", True),
        (Grammar("integer"), "4M", False),
        (Grammar("one-of", of=("INFO", "WARN")), "info", True),
        (Grammar("one-of", of=("INFO", "WARN")), "DEBUG", False),
        (Grammar("list-of", of=("INIT", "NET")), "INIT,NET", True),
        (Grammar("list-of", of=("INIT", "NET")), "^INIT", True),
        (Grammar("list-of", of=("INIT", "NET")), "INIT,SOCKET", False),
        (Grammar("list-of", of=("INIT", "NET")), ",", False),
        (Grammar("interfaces"), "^=eth0,ens1f0np0", True),
        (Grammar("interfaces"), "eth0 eth1", False),
        (Grammar("devices"), "=mlx5_0:1,mlx5_3:1", True),
        (Grammar("devices"), "mlx5_0;mlx5_1", False),
        (Grammar("text"), "anything goes", True),
        (Grammar("path"), "", False),
    ],
)
def test_values(grammar: Grammar, value: str, fits: bool) -> None:
    assert values.fits(grammar, value) is fits


@pytest.mark.parametrize(
    ("kind", "one", "other", "same"),
    [
        ("integer", "4194304", "0x400000", True),
        ("integer", "1", "1.0", True),
        ("integer", "1", "2", False),
        ("truth", "1", "true", True),
        ("truth", "1", "no", False),
        ("truth", "1", "perhaps", False),
        ("text", "Ring", "ring", True),
        ("text", "Ring", "Tree", False),
    ],
)
def test_values_that_mean_the_same(kind: str, one: str, other: str, same: bool) -> None:
    assert values.same(Grammar(kind), one, other) is same


@pytest.mark.parametrize(
    ("grammar", "english", "chinese"),
    [
        (PORT, "a whole number from 1 to 65535, or auto", "整数，1 到 65535，或 auto"),
        (Grammar("integer", least=1, unit="seconds"), "a whole number of seconds, 1 or more", "整数（秒），不小于 1"),
        (Grammar("number", most=0.5), "a number, at most 0.5", "数字，不大于 0.5"),
        (Grammar("one-of", of=("a", "b")), "one of a, b", "以下之一：a、b"),
    ],
)
def test_grammars_in_words(grammar: Grammar, english: str, chinese: str) -> None:
    assert values.describe(grammar) == {"en": english, "zh": chinese}
