"""Templates of messages, and the keys that make them unnecessary."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

from nccl_triage.parsers import templates

LOGS = Path(__file__).parents[2] / "corpus" / "written" / "logs"


def other_digits(line: str, chance: random.Random) -> str:
    return "".join(chance.choice("0123456789") if c.isdigit() and chance.random() < 0.5 else c for c in line)


def test_messages_with_one_key_have_one_template() -> None:
    chance = random.Random(3)
    found: dict[object, set[str]] = defaultdict(set)
    for path in chance.sample(sorted(LOGS.glob("*.log")), 60):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[:60]:
            for text in (line, *(other_digits(line, chance) for _ in range(3))):
                found[templates.key(text)].add(templates.template(text))
    assert {key: told for key, told in found.items() if len(told) > 1} == {}


def test_codes_stay_and_values_go() -> None:
    one, two = "status=12 after 30 s at 10.0.0.7", "status=13 after 45 s at 10.0.0.8"
    assert templates.template(one) != templates.template(two)
    assert templates.key(one) != templates.key(two)
    assert templates.template(one) == templates.template("status=12 after 99 s at 10.1.2.3")
