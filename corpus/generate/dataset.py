"""Labelled sets: logs drawn over causes, launchers, frameworks, lengths and views, with their ``cases.jsonl``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from corpus.generate import variants
from corpus.generate.generated import Generated, healthy, incident
from corpus.generate.views import VIEWS

_LENGTHS = (1_000, 4_000, 12_000, 12_000, 40_000, 40_000, 150_000)
_HEALTHY_SHARE = 0.12


def draw(count: int, seed: int, causes: list[str] | None = None) -> Iterator[tuple[str, Generated]]:
    """Yield names and logs; causes take turns, so that every one has its share."""
    chance = Random(f"set/{seed}")
    wanted = causes or variants.causes()
    order: list[str] = []
    for number in range(count):
        if not order:
            order = wanted[:]
            chance.shuffle(order)
        own = chance.randrange(1 << 30)
        length = int(chance.choice(_LENGTHS) * chance.uniform(0.7, 1.4))
        view = chance.choice(("full", "full", "full", *VIEWS))
        if causes is None and chance.random() < _HEALTHY_SHARE:
            yield f"{number:05d}-healthy", healthy(own, length=max(length, 4_000), view=view)
            continue
        cause = order.pop()
        yield f"{number:05d}-{cause}", incident(cause, own, length=length, view=view)


def write(folder: Path, count: int, seed: int, causes: list[str] | None = None) -> int:
    """Write a set and return how many logs it has; a log that a view left empty is skipped."""
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    made = 0
    with (folder / "cases.jsonl").open("w", encoding="utf-8") as index:
        for name, generated in draw(count, seed, causes):
            log = generated.log
            if not log.strip():
                continue
            path = f"logs/{name}.log"
            (folder / path).write_bytes(log)
            entry: dict[str, Any] = {"id": name, "log": path, **generated.label}
            index.write(json.dumps(entry, ensure_ascii=False) + "\n")
            made += 1
    return made
