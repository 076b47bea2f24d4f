"""Counters of loops that no signature knows: what rises line by line near the end of a log."""

from __future__ import annotations

from random import Random

import pytest

from nccl_triage.parsers import counters
from nccl_triage.parsers.counters import LINES, advancing


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("work INFO r0 iter {}", "iter"),
        ("INFO:root:iter = {}, fwd: 0.0017, bwd: 0.0021", "iter"),
        ("[2026-11-02 10:00:{:02d}] round {} of 100 done", "round"),
        ("| Episode {} | reward -3.1 |", "episode"),
        ("Global_Step: {} :: score 0.1", "global_step"),
        ('{{"batch": {}, "items": 32}}', "batch"),
        (" step n=      {}  (t-t30)*bf=Nt=   9.9979353E-002", "step"),
        ("Processing question {} of 100: done", "item"),
        ("[{}/64] shard written", "item"),
    ],
)
def test_a_number_behind_a_word_that_rises_is_a_step(form: str, name: str) -> None:
    lines = [form.format(n, n) for n in range(5, 12)]
    found = advancing(["something else", *lines, "the end"])
    assert found[-1].name == name and found[-1].value == 11 and found[-1].index == 7
    assert [count.value for count in found] == [5, 6, 9, 10, 11]


@pytest.mark.parametrize(
    "lines",
    [
        ["step 1: install the driver", "step 2: reboot"],
        [f'  File "train.py", line {n}, in step' for n in range(9)],
        [f"2026-11-02 10:00:0{n} INFO waiting" for n in range(9)],
        ["iter 7"] * 9,
        [f"{n}/12/2023 the table was written" for n in range(1, 9)],
        [f"scale {n} of 2 to 1" for n in range(5, 12)],
        [f"[rank {n}/8] group is ready" for n in range(8)],
        [f"connect to 10.0.0.7<53332> returned Connection refused, retrying ({n}/34)" for n in range(8)],
        ["epoch 3", "epoch 900000", "epoch 12", "epoch 5000000"],
        [f"sshd[{n}]: session opened" for n in range(1700, 1709)],
        [],
    ],
    ids=[
        "instructions",
        "frames",
        "times",
        "the same",
        "dates",
        "ratios",
        "ranks",
        "tries",
        "at random",
        "processes",
        "nothing",
    ],
)
def test_what_does_not_count_is_no_counter(lines: list[str]) -> None:
    assert advancing(lines) == []


def test_inner_loops_begin_anew() -> None:
    lines = [f"epoch {n // 10} batch {n % 10} of 10" for n in range(30)]
    found = advancing(lines)
    assert (found[-1].name, found[-1].value, found[-1].total) == ("batch", 9, 10)


def test_several_ranks_count_alike() -> None:
    lines = [f"{rank}: round {n}" for n in range(6) for rank in range(4)]
    assert advancing(lines)[-1].value == 5


def test_long_lines_cost_little() -> None:
    assert advancing(["step " + "9" * 100_000] * LINES) == []


def test_the_expression_is_tried_only_where_a_name_may_begin_and_finds_the_same() -> None:
    chance = Random(1)
    words = (
        "step",
        "train_step",
        "Micro batch",
        "mini_batch",
        "training minibatch",
        "timestep",
        "xmini_batch",
        "its",
        "it",
        "global_",
    )
    behind = (" ", ":", "=", "[", "(", '"', "/", " of ", ".5 s", "s: ", "(train) ", "\n")
    for _ in range(300):
        text = "".join(chance.choice((*words, *behind, *behind, str(chance.randrange(10**6)))) for _ in range(60))
        expected = [(found.span(), found.groupdict()) for found in counters._COUNTER.finditer(text)]
        assert [(found.span(), found.groupdict()) for found in counters._counters(text)] == expected


def test_a_number_far_behind_another_such_word_is_whole() -> None:
    lines = [f"timing per iteration: {'.' * 73} step:{n}" for n in range(100, 110)]
    assert [count.value for count in advancing(lines)] == [100, 101, 107, 108, 109]


def test_of_few_lines_it_is_only_said_what_more_of_them_would_not_change() -> None:
    lines = [f"step {n}" if n % 5 else f"saved round {n}" for n in range(41)]
    assert advancing(lines)[-1].name == "round"
    assert advancing(lines[-8:])[-1].name == "step"
    assert advancing(lines[-8:], certain=True) == []
    assert advancing(lines[-9:-1], certain=True) == advancing(lines[-9:-1]) != []
