"""p2pBandwidthLatencyTest's tables: direct transfers slower than copies through the host are told once a table."""

from __future__ import annotations

from pathlib import Path

from nccl_triage.api import diagnose
from nccl_triage.observations.event import Event
from nccl_triage.parsers.p2p_test import MAX_TABLES, P2pTestParser
from nccl_triage.parsers.stateful import PeeledLine
from tests.prefix_reading import peel

WITHOUT = """Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1      2
     0 673.20  13.15  13.15
     1  12.99 673.20  22.20
     2  13.00  21.98 673.78
"""
WITH = """Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1      2
     0 673.49  %s
     1   2.12 672.33   1.70
     2   2.12   1.60 673.78
"""


def run(text: str) -> list[Event]:
    parser, events = P2pTestParser(), []
    for number, line in enumerate(text.splitlines(), 1):
        peeled = peel(line)
        events += parser.feed(PeeledLine("log", number, peeled.text, peeled.context))
    return [*events, *parser.finish()]


def test_the_slowest_pair_of_the_first_slow_row_is_told() -> None:
    (event,) = run(WITHOUT + WITH % " 2.60   1.58")
    assert event.signature == "nccl.p2p_test_slow"
    assert event.line == 8
    assert event.fields == {"gpu": "0", "peer": "2", "value": "1.58", "without": "13.15"}


def test_a_row_that_is_fast_is_passed_over_and_the_own_memory_does_not_count() -> None:
    (event,) = run(WITHOUT + WITH % "26.00  25.90")
    assert (event.line, event.fields["gpu"], event.fields["peer"]) == (9, "1", "2")


def test_nothing_is_told_without_the_other_table_or_with_a_line_between() -> None:
    assert run(WITH % " 2.60   1.58") == []
    assert (
        run((WITHOUT + WITH % " 2.60   1.58").replace("(P2P Writes) Matrix (GB/s)\n", "Matrix (GB/s)\nhello\n")) == []
    )


def test_the_whole_points_at_p2p(tmp_path: Path) -> None:
    log = tmp_path / "p2p.log"
    log.write_text(WITHOUT + WITH % " 2.60   1.58")
    assert diagnose(log, model=None).candidates[0].id == "gpu-p2p-broken"


def test_the_tables_remembered_are_bounded() -> None:
    slow = WITHOUT + WITH % " 2.60   1.58"
    many = "".join(f"[rank{rank}]: {line}\n" for rank in range(MAX_TABLES + 50) for line in slow.splitlines())
    assert len(run(many)) == MAX_TABLES
