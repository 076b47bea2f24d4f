"""Numbers and connections found by a scan: by whom, from which lines, and the same from any parts of a log."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations import curves
from nccl_triage.observations.curves import CurveProcess, kind_of
from nccl_triage.observations.store import Observations, SourceInfo
from nccl_triage.parsers.series import SeriesReader, SeriesReading
from nccl_triage.scan.event_collector import SPEAKER
from nccl_triage.scan.prefilter import NO_HYPERSCAN
from nccl_triage.scan.scanner import Scanner
from tests.scan_helpers import Line, scan_text

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
    rows = sorted(row for _, _, row in found.curves.sampled())
    return [(r.process.rank, int(r.step), dict(r.values)["loss"]) for r in rows if "loss" in dict(r.values)]


def test_numbers_by_rank_step_and_time(rules: RuleSet) -> None:
    found = scan_text(LOG, rules)
    assert len(loss(found)) == 40
    assert loss(found)[:3] == [(0, 0, 2.0), (1, 0, 2.0), (0, 1, 1.0)]
    ends = found.curves.ends[kind_of(("epoch-line", "script-step"))]
    assert [(p.rank, e.first.step, e.last.step) for p, e in sorted(ends.items())] == [(0, 0, 19), (1, 0, 19)]
    assert ends[min(ends)].last.time - ends[min(ends)].first.time == 19.0
    bars = [row.values for _, _, row in found.curves.sampled() if "loss" not in dict(row.values)]
    assert bars == [(("step_time", 4.0),)]


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
    assert total.curves.ends == whole.curves.ends
    assert total.links.kept() == whole.links.kept()


def long_log() -> list[Line]:
    """Return a log with far more lines of numbers than a small sample holds, noise that looks like them, and a NaN."""
    texts = []
    for step in range(150):
        value = "nan" if step == 77 else f"{2 / (step + 1):.4f}"
        texts += [f"[rank{rank}]: step {step} loss {value if rank == 1 else 1.5} lr 1e-3" for rank in (0, 1, 2)]
        texts += [f"[rank{rank}]: {{'loss': 0.5, 'learning_rate': 1e-3, 'epoch': {step / 10}}}" for rank in (0, 1)]
        if step % 7 == 0:
            texts.append('[rank1]:   File "train.py", line 12, in step: loss = criterion(out)')
    return [Line(number, text) for number, text in enumerate(texts, 1)]


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(0, 770), max_size=3))
def test_a_long_log_in_any_parts_gives_the_same(scanner: Scanner, cuts: list[int]) -> None:
    """Most lines are not read; first and last lines of each rank and what is not finite are there all the same."""
    lines = long_log()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "SAMPLE", 20)
        whole = scanner.scan(lines, SourceInfo("log")).curves
        total = Observations()
        for start, end in pairwise([0, *sorted(cuts), len(lines)]):
            total.absorb(scanner.scan(lines[start:end], SourceInfo("log")))
        assert total.curves.sampled() == whole.sampled()
        assert total.curves.ends == whole.ends
        assert total.curves.strange == whole.strange
    assert [(row.step, row.process.rank) for row in whole.strange["loss"][0]] == [(77, 1)]
    ends = whole.ends[kind_of(("epoch-line", "script-step"))]
    assert [(p.rank, e.first.step, e.last.step) for p, e in sorted(ends.items())] == [(r, 0, 149) for r in (0, 1, 2)]


def test_most_lines_of_a_long_log_are_not_read(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "SAMPLE", 20)
    read: list[str] = []
    original = SeriesReader.read

    def counted(self: SeriesReader, text: str, among: tuple[str, ...]) -> SeriesReading | None:
        read.append(text)
        return original(self, text, among)

    monkeypatch.setattr(SeriesReader, "read", counted)
    Scanner(rules).scan(long_log(), SourceInfo("log"))
    assert 40 <= len(read) < 400
    assert sum("nan" in text for text in read) == 1


def test_both_prefilters_find_the_same(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = scan_text(LOG, rules)
    monkeypatch.setenv(NO_HYPERSCAN, "1")
    slow = scan_text(LOG, rules)
    assert loss(fast) == loss(slow)
    assert fast.links.kept() == slow.links.kept()


def processes(found: Observations) -> set[CurveProcess]:
    return {row.process for _, _, row in found.curves.sampled()}


def test_a_time_of_day_is_no_process(rules: RuleSet) -> None:
    text = "\n".join(
        f"06/03 14:{minute}:01 - mmengine - INFO - Iter(train) [{minute}/99]  data_time: 0.1  loss: 2.5"
        for minute in range(10, 40)
    )
    assert processes(scan_text(text, rules)) == {CurveProcess(source="log")}


def test_the_prefix_names_the_rank(rules: RuleSet) -> None:
    found = scan_text("[rank3]: step 1 loss 2.5\n[default1]:step 1 loss 2.5\n", rules)
    assert {(p.rank, p.local_rank) for p in processes(found)} == {(3, -1), (-1, 1)}


def test_numbers_make_no_line_a_candidate_for_rules(rules: RuleSet) -> None:
    """A rank that prints nothing but its memory is known to speak, as if its line had no literal at all."""
    found = scan_text("[rank5]: memory allocated: 20.5 GB, memory reserved: 24.5 GB.", rules)
    assert [row.values for _, _, row in found.curves.sampled()] == [
        (("gpu_memory", 20.5), ("gpu_memory_reserved", 24.5))
    ]
    assert [event.context.rank for event in found.events(SPEAKER)] == [5]


def test_lines_of_nccl_report_no_numbers(rules: RuleSet) -> None:
    assert not scan_text("gpu07:4120:4388 [0] NCCL WARN step 9 loss 1.5 nan", rules).curves


def test_numbers_inside_json(rules: RuleSet) -> None:
    text = r'{"time": "2025-06-03T14:22:01Z", "level": "INFO", "message": "step 3 \u006coss 2.5"}'
    assert loss(scan_text(text, rules)) == [(-1, 3, 2.5)]
