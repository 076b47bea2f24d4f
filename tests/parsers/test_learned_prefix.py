"""What was put before every line when a log was copied or collected is taken away, and only that."""

from __future__ import annotations

import pytest

from tests.prefix_reading import peel, sniff

LOG = [
    "[rank0]: Traceback (most recent call last):",
    '[rank0]:   File "/opt/train.py", line 9, in main',
    "[rank0]:     loss.backward()",
    "[rank0]: RuntimeError: it broke",
    "[rank1]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] watchdog",
    "gpu07:4120:4233 [1] NCCL WARN Call to connect failed",
]


def peeled(lines: list[str]) -> list[tuple[int | None, str]]:
    profile = sniff(lines)
    found = [peel(line, profile) for line in lines]
    return [(one.context.rank, one.text) for one in found]


@pytest.mark.parametrize(
    "put",
    [
        "> {line}",
        "> > {line}",
        "    {line}",
        "\t{line}",
        "{number:6d}\t{line}",
        "{number:5d}  {line}",
        "{number}:{line}",
        "logs/trainer.log:{number}:{line}",
        "llama-8b.D0 [stderr] {line}",
        "26/08/17 10:00:{number:02d} ERROR TorchDistributor: {line}",
        '"{line}"',
        '"2026-08-17T10:00:{number:02d}Z","gpu07","{line}"',
    ],
)
def test_what_stands_before_every_line_is_taken_away(put: str) -> None:
    double = LOG if not put.startswith('"') else [line.replace('"', '""') for line in LOG]
    assert peeled([put.format(number=n, line=line) for n, line in enumerate(double, 7)]) == peeled(LOG)


@pytest.mark.parametrize(
    "put",
    [
        "2026-08-17 10:00:{n:02d}.123 {line}",
        "[pod/train-0/pytorch] {line}",
        "2026-08-17T10:00:{n:02d}Z stdout F {line}",
    ],
)
def test_prefixes_of_launchers_are_found_behind_those_of_collectors(put: str) -> None:
    bare = [f"node{n % 2}: step {n} loss 2.0" for n in range(9)]
    lines = [put.format(n=n, line=line) for n, line in enumerate(bare)]
    profile = sniff(lines)
    assert [peel(line, profile).context.host for line in lines] == [f"node{n % 2}" for n in range(9)]


@pytest.mark.parametrize(
    "lines",
    [
        [f"gpu0{n}:41{n}:41{n} [{n}] NCCL INFO Using network Socket" for n in range(8)],
        [f"step {n}: loss 2.{n}" for n in range(9)],
        [f"{3 + n % 2}: step {n}" for n in range(9)],
        [f"2026-08-17 10:00:0{n} worker: epoch {n}" for n in range(9)],
        ["Traceback (most recent call last):", '  File "x.py", line 3, in f', "    raise ValueError", "ValueError: x"],
    ],
)
def test_what_the_programs_print_stays(lines: list[str]) -> None:
    profile = sniff(lines)
    assert profile.outer is None
    assert all(peel(line, profile).context.host in (None, f"gpu0{n}") for n, line in enumerate(lines))


def test_numbers_that_do_not_rise_count_no_lines() -> None:
    assert sniff([f"{n % 3 + 10} {line}" for n, line in enumerate(LOG)]).outer is None


def hosts(lines: list[str]) -> list[str | None]:
    profile = sniff(lines)
    return [peel(line, profile).context.host for line in lines]


@pytest.mark.parametrize(
    "put",
    [
        "[job/algo-1] {line}",
        "2026/08/17 10:00:{n:02d} | stream 7 | {line}",
        "trainer-logs {n:04d} 2026-08-17T10:00:{n:02d}.5Z {line}",
    ],
)
def test_who_speaks_is_kept_where_a_number_that_changes_stands_in_every_line(put: str) -> None:
    lines = [put.format(n=n, line=f"node{n % 2}: step {n} loss 2.0") for n in range(12)]
    assert hosts(lines) == [f"node{n % 2}" for n in range(12)]


def test_the_head_of_a_table_is_no_line_of_the_log() -> None:
    rows = [f'"2026-08-17T10:00:{n:02d}Z","{line.replace(chr(34), chr(34) * 2)}"' for n, line in enumerate(LOG)]
    assert peeled(["timestamp,message", *rows])[1:] == peeled(LOG)


def test_what_stands_behind_known_prefixes_is_learnt_too() -> None:
    lines = [f"2026-08-17T10:00:{n:02d}.123Z pytorchjob/train@main : {line}" for n, line in enumerate(LOG)]
    profile = sniff(lines)
    assert profile.inner is not None
    assert peeled(lines) == peeled(LOG)


@pytest.mark.parametrize("put", ["> {line}", "{n:6d}\t{line}", "{n}:{line}"])
def test_quotes_and_numbers_of_lines_are_taken_off_even_what_is_known_behind_them(put: str) -> None:
    lines = [f"{n % 3}: gpu01:410{n % 3}:41{n} [0] NCCL INFO Using network Socket" for n in range(12)]
    copied = [put.format(n=n, line=line) for n, line in enumerate(lines, 1)]
    profile = sniff(copied)
    assert [peel(line, profile).context.group_rank for line in copied] == [n % 3 for n in range(12)]


def test_the_numbers_of_tasks_are_no_numbers_of_lines() -> None:
    lines = [f"{n}: starting on gpu{n:02d}" for n in range(12)]
    assert sniff(lines).outer is None
