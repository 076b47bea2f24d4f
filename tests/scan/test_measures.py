"""Numbers and connections found by a scan: by whom, from which lines, and the same from any parts of a log."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_triage.curves import Process
from nccl_triage.engine.schema import RuleSet
from nccl_triage.events import Observations, SourceInfo
from nccl_triage.scan.prefilter import NO_HYPERSCAN
from nccl_triage.scan.scanner import SPEAKER, Scanner
from scan_helpers import Line, scan_text

LOG = "\n".join(
    [
        "gpu07:4120:4388 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "gpu07:4120:4388 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "gpu07:4121:4389 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [send] via NET/IB/0/GDRDMA",
        *(
            f"2025-06-03 14:22:{second:02d},123 - INFO - train - [rank {rank}/2] step {second} loss {2 / (second + 1):.3f}"
            for second in range(20)
            for rank in (0, 1)
        ),
        "  5%|▍         | 12/240 [00:48<15:12,  4.00s/it]",
        "gpu07:4120:4388 [0] NCCL WARN step 9 loss 1.5",
    ]
)


def loss(found: Observations) -> list[tuple[int, int, float]]:
    return [(p.process.rank, int(p.step), p.value) for p in sorted(found.curves.curves["loss"].sample())]


def test_numbers_by_rank_step_and_time(rules: RuleSet) -> None:
    found = scan_text(LOG, rules)
    curve = found.curves.curves["loss"]
    assert curve.whole.count == 40
    assert {process.rank: summary.count for process, summary in curve.processes.items()} == {0: 20, 1: 20}
    assert loss(found)[:3] == [(0, 0, 2.0), (1, 0, 2.0), (0, 1, 1.0)]
    assert curve.whole.first is not None and curve.whole.last is not None
    assert curve.whole.last.time - curve.whole.first.time == 19.0
    assert [p.value for p in found.curves.curves["step_time"].sample()] == [4.0]


def test_connections_with_their_channels(rules: RuleSet) -> None:
    links = scan_text(LOG, rules).links
    assert links.lines == 3
    assert {(k.host, k.pid, k.source_rank, k.target_rank, k.via, k.direct): (s.channels, s.place) for k, s in links.kept().items()} == {
        ("gpu07", 4120, 0, 1, "P2P", False): (0b11, ("log", 1)),
        ("gpu07", 4121, 1, 0, "NET/IB", True): (0b1, ("log", 3)),
    }  # fmt: skip


@pytest.fixture(scope="module")
def scanner(rules: RuleSet) -> Scanner:
    return Scanner(rules)


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 45), max_size=3))
def test_any_parts_of_a_log_give_the_same(scanner: Scanner, cuts: list[int]) -> None:
    lines = [Line(number, text) for number, text in enumerate(LOG.splitlines(), 1)]
    whole = scanner.scan(lines, SourceInfo("log"))
    places = [0, *sorted(cuts), len(lines)]
    total = Observations()
    for start, end in pairwise(places):
        total.absorb(scanner.scan(lines[start:end], SourceInfo("log")))
    assert loss(total) == loss(whole)
    assert total.curves.curves["loss"].whole == whole.curves.curves["loss"].whole
    assert total.links.kept() == whole.links.kept()


def test_both_prefilters_find_the_same(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = scan_text(LOG, rules)
    monkeypatch.setenv(NO_HYPERSCAN, "1")
    slow = scan_text(LOG, rules)
    assert loss(fast) == loss(slow)
    assert fast.links.kept() == slow.links.kept()


def test_a_time_of_day_is_no_process(rules: RuleSet) -> None:
    text = "\n".join(
        f"06/03 14:{minute}:01 - mmengine - INFO - Iter(train) [{minute}/99]  data_time: 0.1  loss: 2.5"
        for minute in range(10, 40)
    )
    assert list(scan_text(text, rules).curves.curves["loss"].processes) == [Process(source="log")]


def test_the_prefix_names_the_rank(rules: RuleSet) -> None:
    found = scan_text("[rank3]: step 1 loss 2.5\n[default1]:step 1 loss 2.5\n", rules)
    assert {(p.rank, p.local_rank) for p in found.curves.curves["loss"].processes} == {(3, -1), (-1, 1)}


def test_lines_found_by_a_format_alone_still_tell_who_speaks(rules: RuleSet) -> None:
    """A rank that prints nothing but its memory is known to speak, as if its line had no literal at all."""
    text = "[rank5]: memory allocated: 20.5 GB, memory reserved: 24.5 GB."
    found = scan_text(text, rules)
    assert found.curves.curves["gpu_memory"].whole.count == 1
    assert [event.context.rank for event in found.events(SPEAKER)] == [5]


def test_many_numbers_take_bounded_space(rules: RuleSet) -> None:
    def lines() -> Iterator[Line]:
        for number in range(1, 9_001):
            yield Line(number, f"[rank{number % 600}]: step {number} loss 0.5 lr 0.1")

    found = Scanner(rules).scan(lines(), SourceInfo("log"))
    assert found.curves.curves["loss"].whole.count == 9_000
    assert len(found.curves.curves["loss"].sample()) == 1024
    assert len(found.curves.curves["loss"].processes) == 64
