"""Lines that are only counted give the same observations as lines that are all read."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.scan import shapes
from nccl_triage.scan.line_parser import LineParser
from tests.scan_helpers import log, scan_text

#: Before or behind month and day, or behind the time of day.
YEAR = re.compile(
    r"(?<!\d)\d{4}(?=[-/]\d\d[-/]\d\d)|(?<=\d/\d\d/)\d{4}(?= )|(?<=:\d\d )\d{4}(?!\d)|(?<=[a-z] \d\d )\d{4}(?= \d\d:)"
)
LOGS = Path(__file__).parents[2] / "corpus" / "written" / "logs"


def plain(observations: Any) -> dict[str, Any]:
    """Return observations as something to compare."""
    curves = observations.curves
    for sample in curves.samples.values():
        sample.thin()
    return {
        "counts": observations.counts,
        "buckets": {
            name: {key: (bucket.count, bucket.first, bucket.last) for key, bucket in by_key.items()}
            for name, by_key in observations.buckets.items()
        },
        "links": (observations.links.links, observations.links.lines),
        "curves": (curves.samples, curves.ends, curves.strange),
    }


def same(text: str, rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Scan a text with and without counting; the results are the same and returned."""
    with monkeypatch.context() as patch:
        patch.setattr(shapes, "PATIENCE", 10**9)
        everything = plain(scan_text(text, rules))
    with monkeypatch.context() as patch:
        patch.setattr(shapes, "PATIENCE", 2)
        counted = plain(scan_text(text, rules))
    assert counted == everything
    return everything


def other_digits(line: str, chance: random.Random) -> str:
    """Return a line with some of its digits changed, and the year that all lines of a log have.

    A line whose stamp has none takes that of the line before.
    """
    changed = "".join(chance.choice("123456789") if c.isdigit() and chance.random() < 0.3 else c for c in line)
    return YEAR.sub("2025", changed)


@pytest.mark.parametrize("profile", ["verbose", "storm", "quiet"])
def test_the_logs_of_the_bench(profile: str, rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    same(log(profile, 600_000), rules, monkeypatch)


def repeated(lines: Sequence[str], chance: random.Random) -> Iterator[str]:
    """Yield lines of incidents again and again with other digits, as many ranks print them."""
    chosen = chance.sample(lines, 12)
    for _ in range(60):
        for line in chosen:
            yield other_digits(line, chance)


@pytest.mark.parametrize("seed", range(6))
def test_storms_of_lines_of_incidents(seed: int, rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    lines = [
        line
        for path in chance.sample(sorted(LOGS.glob("*.log")), 25)
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip()
    ]
    found = same("\n".join(repeated(lines, chance)), rules, monkeypatch)
    assert found["counts"]


def test_samples_of_all_signatures_with_other_digits(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    samples = [sample for one in rules.signatures.values() for sample in one.match_samples if "\n" not in sample]
    lines = [other_digits(line, chance) for line in chance.sample(samples, 200) for _ in range(12)]
    chance.shuffle(lines)
    same("\n".join(lines), rules, monkeypatch)


def test_particular_digits_are_not_folded(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "[12345.{n:06d}] NVRM: Xid (PCI:0000:3b:00): {xid}, pid=1234, name=python, text"
    lines = [line.format(n=n, xid=79 if n == 90 else 13) for n in range(120)]
    found = same("\n".join(lines), rules, monkeypatch)
    assert found["counts"]["nvidia-driver.xid_any"] == len(lines)
    # 79 has a key of its own: it is kept among a storm of others.
    assert "'79'" in str(found)


def test_full_tables_are_put_away_and_learnt_again(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MAX_GROUPS", 20)
    monkeypatch.setattr("nccl_triage.scan.source.BATCH_LINES", 300)
    same(log("storm", 800_000), rules, monkeypatch)


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which every line is added that is read from now on."""
    read: list[str] = []

    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(parser: LineParser, text: str, *given: Any) -> Any:
            read.append(text)
            return method(parser, text, *given)

        return call

    for name in ("peel", "parse", "states_numbers"):
        monkeypatch.setattr(LineParser, name, counting(getattr(LineParser, name)))
    return read


def test_lines_are_counted_and_not_read(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "[rank{rank}]: gpu1:{pid}:7 [{rank}] socket.cc:540 NCCL WARN Net : Connection closed by remote peer n{n}<{port}>"
    lines = [line.format(rank=n % 4, pid=100 + n % 4, n=n % 10, port=n % 7 + 40_000) for n in range(8000)]
    read = reads(monkeypatch)
    found = scan_text("\n".join(lines), rules)
    assert found.count("nccl.sock_closed_by_peer") == 8000
    assert len(read) < 2000


def test_pointers_are_numbers(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(4)
    line = (
        "gpu1:{pid}:7 [{rank}] NCCL INFO AllReduce: opCount 5 sendbuff 0x{a:012x} recvbuff 0x{b:012x} count 64 datatype 7 "
        "op 0 root 0 comm 0x55aa00bb1100 [nranks=4] stream 0x55aa00bb2200"
    )
    high = 1 << 46
    text = "\n".join(
        line.format(pid=100 + n % 4, rank=n % 4, a=chance.getrandbits(46) | high, b=chance.getrandbits(46) | high)
        for n in range(2000)
    )
    same(text, rules, monkeypatch)
    read = reads(monkeypatch)
    assert scan_text(text, rules).count("nccl.coll_call") == 2000
    assert len(read) < 800


def test_frames_of_native_stacks_are_counted(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their file holds "python3", which messages ask for whose digits matter; no such message can stand in them."""
    chance = random.Random(5)
    frames = (
        "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7f{a:010x} in {lib}/libc10.so)",
        "frame #1: c10d::ProcessGroupNCCL::watchdogHandler() + 0x233 (0x7f{a:010x} in {lib}/libtorch_cuda.so)",
    )
    lib = "/usr/local/lib/python3.11/dist-packages/torch/lib"
    text = "\n".join(
        f"(Actor pid={100 + n % 50}, ip=10.0.0.{n % 50}) "
        + frames[n % 2].format(a=chance.getrandbits(40) | 1 << 39, lib=lib)
        for n in range(4000)
    )
    same(text, rules, monkeypatch)
    read = reads(monkeypatch)
    scan_text(text, rules)
    assert len(read) < 1000
