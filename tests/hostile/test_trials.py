"""Inputs far too large, taken small: an answer each time, in little memory. ``make hostile`` takes them whole."""

from __future__ import annotations

import io

import pytest

from nccl_triage import diagnose
from nccl_triage.errors import InputError
from tests.hostile.trials import TRIALS, bomb, run


@pytest.mark.parametrize("name", TRIALS)
def test_too_much_input_gets_an_answer(name: str) -> None:
    trial = TRIALS[name]
    data = io.BytesIO(b"".join(trial.feed(trial.small)))
    if trial.code:
        with pytest.raises(InputError, match="no readable input") as caught:
            diagnose("-", stdin=data)
        assert trial.says in (caught.value.cause or "")
        return
    document = diagnose("-", stdin=data).to_dict()
    assert document["verdict"] in ("unknown", "diagnosed", "healthy")
    told = [problem for item in document["inputs"] for problem in item["problems"]]
    if trial.says and trial.says != "root cause":
        assert any(trial.says in problem for problem in told)
    elif trial.says:
        assert document["diagnoses"]


def test_memory_does_not_grow_with_what_a_bomb_unpacks_to() -> None:
    little, much = (run(bomb(b"x", size)) for size in (1 << 20, 256 << 20))
    assert (little.code, much.code) == (0, 0)
    assert much.memory < little.memory + 12
