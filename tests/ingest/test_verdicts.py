"""A log that ends with a verdict of nccl-triage is read as if it did not."""

from __future__ import annotations

import pytest

from nccl_triage.ingest.blocks import Block
from nccl_triage.ingest.verdicts import Verdicts

from .helpers import Pieces, texts

VERDICT = """nccl-triage: the command failed with exit code 1
nccl-triage: A GPU ran out of memory (rank 3).
  root cause: gpu-out-of-memory (confidence 0.99, established): A GPU ran out of memory
  out.log:5: torch.OutOfMemoryError: CUDA out of memory.
    decisive: PyTorch's allocator says so.
  fix: See first whether another process holds the memory
    $ nvidia-smi
  verification: not verified
nccl-triage: the output is kept in /tmp/output.log
"""
BEFORE, AFTER = "step 1 loss 2.0", "step 2 loss 1.9"


def lines(text: str, prefix: str = "") -> list[str]:
    return [f"{prefix}{line}" for line in text.splitlines()]


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[pod/a-0/pytorch] 2026-11-20T10:00:05.123456789Z ",
        "(Trainer pid=7, ip=10.0.0.1) ",
        "[default0]:",
        "node-b: ",
    ],
)
def test_the_verdict_is_blank_and_the_rest_as_it_was(prefix: str) -> None:
    log = [prefix + BEFORE, *lines(VERDICT, prefix), prefix + AFTER]
    read = texts("\n".join(log).encode() + b"\n")
    assert (read[0], read[-1]) == (log[0], log[-1])
    assert [line.rstrip() for line in read[1:-1]] == [prefix.rstrip()] * len(VERDICT.splitlines())
    assert [len(line) for line in read] == [len(line) for line in log]


def test_times_may_differ_from_line_to_line() -> None:
    verdict = "".join(f"2026-11-20T10:00:0{n % 10}Z {line}\n" for n, line in enumerate(VERDICT.splitlines()))
    assert not any("memory" in line for line in texts(verdict.encode()))


def test_colours_are_part_of_it() -> None:
    text = "\x1b[1mnccl-triage:\x1b[0m A GPU ran out of memory.\n  \x1b[1mroot cause:\x1b[0m gpu-out-of-memory\n"
    assert [line.strip() for line in texts(text.encode())] == ["", ""]


def test_a_verdict_in_chinese_is_blank_by_bytes() -> None:
    text = "nccl-triage: GPU 显存不足。\n  根因: gpu-out-of-memory\n"
    assert [line.strip() for line in texts(text.encode())] == ["", ""]


@pytest.mark.parametrize("size", range(1, 60))
def test_it_does_not_matter_how_the_bytes_arrive(size: int) -> None:
    data = f"{BEFORE}\n{VERDICT}{AFTER}\n".encode()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert texts(Pieces(pieces)) == texts(data)


def test_a_verdict_goes_on_in_the_next_block() -> None:
    blocks = [Block(b"nccl-triage: x\n", 1, 0), Block(b"  root cause: y\nz\n", 2, 15), Block(b"  File z\n", 4, 32)]
    assert [block.data.split(b"\n")[0].strip() for block in map(Verdicts().blank, blocks)] == [b"", b"", b"File z"]


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):\n  File 'train.py', line 3\nValueError: bad\n",
        "pip install nccl-triage\n  Downloading torch\n",
        "\n  indented\n",
    ],
)
def test_other_lines_stay(text: str) -> None:
    assert texts(text.encode()) == text.splitlines()


def test_what_follows_a_verdict_is_read_again() -> None:
    text = "nccl-triage: No failure found in this log.\nTraceback (most recent call last):\n  File 'x.py', line 3\n"
    assert texts(text.encode())[1:] == text.splitlines()[1:]


def test_the_lines_of_another_writer_end_it() -> None:
    text = "[default0]:nccl-triage: A GPU\n[default1]:step 2\n[default0]:  File 'x.py'\n"
    assert texts(text.encode())[1:] == text.splitlines()[1:]
