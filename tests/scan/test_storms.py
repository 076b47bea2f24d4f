"""A sampled storm of error lines gives what reading each of its lines gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.store import Observations
from nccl_triage.parsers import STATEFUL
from nccl_triage.scan.scanner import Scanner
from tests.scan.test_sampling import exact, scan, told
from tests.scan.test_shapes import other_digits
from tests.scan_helpers import log

LOGS = Path(__file__).parents[2] / "corpus" / "written" / "logs"
OOM = "[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {n}.00 GiB."
CLOSED = "gpu1:{pid}:7 [{rank}] socket.cc:540 NCCL WARN Net : Connection closed by remote peer n{n}<{port}>"


@pytest.fixture
def scanner(rules: RuleSet) -> Scanner:
    return Scanner(rules)


def storm(lines: int) -> list[str]:
    """Return lines of which every other tells of a fault."""
    made = []
    for n in range(lines // 2):
        made.append(CLOSED.format(pid=100 + n % 8, rank=n % 8, n=n % 10, port=40_000 + n % 977))
        made.append(f"[rank{n % 8}]: worker {n} at 0x{n * 7919:012x} idle")
    return made


def same(scanner: Scanner, text: str) -> Observations:
    """Scan a text in blocks and line by line: what must be the same is."""
    found, whole = scan(scanner, text), scan(scanner, text, whole=True)
    assert exact(found) == exact(whole)
    return found


def timeless(found: Observations) -> dict[str, Any]:
    """Return what must be the same where lines of several years stand in one log.

    A stamp without a year takes that of the line before it which was read, and not all of them are.
    """
    return {
        name: (number, [replace(event, context=replace(event.context, time=None)) for event in events])
        for name, (number, events) in exact(found).items()
    }


@pytest.mark.parametrize("seed", range(3))
def test_storms_of_the_bench(seed: int, scanner: Scanner) -> None:
    same(scanner, log("storm", 400_000, seed))


@pytest.mark.parametrize("seed", range(6))
def test_lines_of_incidents_again_and_again(seed: int, scanner: Scanner) -> None:
    chance = random.Random(seed)
    lines = [
        line
        for path in chance.sample(sorted(LOGS.glob("*.log")), 12)
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip() and not line.startswith("{") and "\r" not in line
        # A traceback that nothing ends is open to the end of the log.
        and not any(opener in line for parser in STATEFUL for opener in parser.OPENERS)
    ]  # fmt: skip
    few = chance.sample(lines, 30)

    def repeated() -> Iterator[str]:
        for _ in range(150):
            chance.shuffle(few)
            for line, other in zip(few, storm(60), strict=False):
                yield other_digits(line, chance)
                yield other

    found, whole = (scan(scanner, text, way) for text in ["\n".join(repeated()) + "\n"] for way in (False, True))
    assert timeless(found) == timeless(whole)
    assert told(found) == told(whole)


def test_a_block_that_a_fault_opens_goes_on_in_the_next(scanner: Scanner) -> None:
    lines = storm(1200)
    frames = [f'[rank3]:   File "/opt/app/step{n}.py", line {n}, in run\n[rank3]:     run({n})' for n in range(150)]
    lines[600:600] = ["[rank3]: Traceback (most recent call last):", *frames, "[rank3]: ValueError: sample 7 is bad"]
    (event,) = same(scanner, "\n".join(lines) + "\n").events("python.traceback")
    assert event.fields["message"] == "sample 7 is bad"


@pytest.mark.parametrize(
    "strange",
    [
        '{"log": "gpu1:7:7 [1] socket.cc:540 NCCL WARN Net \\u003a Connection closed by remote peer n1<40001>\\n"}',
        "12%|#   | 1/8 [00:01<00:02]\r" + OOM.format(rank=1, n=3),
        "nccl-triage: A GPU ran out of memory (rank 3).\n    a.log:7: " + OOM.format(rank=3, n=2),
        "[rank2]: \udcff\udcfe " + OOM.format(rank=2, n=9),
        "训练 " + OOM.format(rank=4, n=8),
    ],
)
def test_lines_that_are_read_otherwise(strange: str, scanner: Scanner) -> None:
    lines = storm(3000)
    lines[1500:1500] = [strange] * 3
    found = same(scanner, "\n".join(lines).encode("utf-8", "surrogateescape").decode("utf-8", "replace") + "\n")
    assert found.count("nccl.sock_closed_by_peer") >= 1500


def test_other_digits_in_a_literal_make_another_line(scanner: Scanner) -> None:
    quiet = [f"[rank{n % 8}]: worker {n} exits with status 1{n % 8:02d} after 3 s" for n in range(2000)]
    lines = [line for pair in zip(storm(2000), quiet, strict=True) for line in pair]
    lines[3001] = "[rank5]: worker 9 exits with status 137 after 3 s"
    lines += [f"gpu{n % 8} ibv_poll_cq failed, status=1{n % 4} vendor err 129" for n in range(600)]
    same(scanner, "\n".join(lines) + "\n")


def test_text_of_which_no_two_lines_are_alike(scanner: Scanner) -> None:
    chance = random.Random(5)
    words = [f"{chance.getrandbits(80):x}".translate(str.maketrans("0123456789", "ghijklmnop")) for _ in range(6000)]
    lines = storm(600) + [f"error {word} happened" for word in words]
    same(scanner, "\n".join(lines) + "\n")


def test_context_that_tells_nothing_new_is_passed_over_and_seen_again(scanner: Scanner) -> None:
    lines = []
    for n, line in enumerate(storm(16_000)):
        lines += [line, f"gpu1:{100 + n % 8}:7 [{n % 8}] NCCL INFO Channel 0{n % 2}/0 : {n % 8}[1] -> 2[2] via P2P/IPC"]
    lines += ["gpu1:999:7 [9] NCCL INFO Channel 01/0 : 9[1] -> 2[2] via P2P/IPC" for _ in range(400)]
    found = same(scanner, "\n".join(lines) + "\n")
    assert 64 < found.count("nccl.channel_via_net") < 8000
    assert {event.context.pid for event in found.events("nccl.channel_via_net")} >= {100, 107, 999}


def test_who_speaks_at_the_beginning_of_a_block_is_noted_once(scanner: Scanner) -> None:
    lines = [f"[rank{n % 8}]: tick {n}" if n % 3 else line for n, line in enumerate(storm(6000))]
    lines[900:900] = ["10%|#   | 1/8 [00:01<00:02]\r12%|#   | 1/8 [00:01<00:02]"] * 400
    found = scan(scanner, "\n".join(lines) + "\n")
    spoken = [event.line for event in found.events("line.speaker")]
    assert len(spoken) == len(set(spoken)) > 0
