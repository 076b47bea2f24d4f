"""A block whose stream falls silent ends: whoever died in it says no more, and the rest of a log is not read for it."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.event import Context, Event
from nccl_triage.parsers import STATEFUL, stateful
from nccl_triage.parsers.elastic_report import ElasticReportParser
from nccl_triage.parsers.p2p_test import P2pTestParser
from nccl_triage.parsers.stacks import StackParser
from nccl_triage.parsers.stateful import PeeledLine, StatefulParser
from nccl_triage.parsers.tracebacks import TracebackParser
from nccl_triage.scan.line_parser import LineParser
from tests.scan_helpers import log, scan_text

RAISED = ["Traceback (most recent call last):", '  File "/opt/app/train.py", line 12, in run', "    run(1)"]
BLOCKS: dict[type[StatefulParser], list[str]] = {
    TracebackParser: [*RAISED, "ValueError: sample 7 is bad"],
    ElasticReportParser: ["Root Cause (first observed failure):", "  rank      : 3 (local_rank: 3)", "  exitcode  : 1 (pid: 7)"],
    StackParser: ["Process 81: python train.py", 'Thread 81 (idle): "MainThread"', "    wait (threading.py:320)"],
    P2pTestParser: ["Unidirectional P2P=Disabled Bandwidth (P2P Writes) Matrix (GB/s)", "   D\\D     0      1"],
}  # fmt: skip


def feed(parser: StatefulParser, texts: list[str], first: int = 1) -> list[Event]:
    found: list[Event] = []
    for number, text in enumerate(texts, first):
        found += parser.feed(PeeledLine("log", number, text, Context(rank=3)))
    return found


def test_each_parser_is_tried() -> None:
    assert set(BLOCKS) == set(STATEFUL)


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.__name__)
def test_it_ends_where_it_would_have_ended(kind: Any) -> None:
    texts = BLOCKS[kind]
    ended, given_up = kind(), kind()
    told = feed(ended, texts) + ended.finish()
    before = feed(given_up, texts)
    assert given_up.is_open()
    assert given_up.give_up(len(texts) + 300) == [] and given_up.is_open()
    assert before + given_up.give_up(len(texts) + stateful.SILENCE_AFTER + 1) == told
    assert not given_up.is_open()


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.__name__)
def test_whoever_speaks_again_finds_no_block_open_whether_it_was_given_up_or_not(kind: Any) -> None:
    texts = BLOCKS[kind]
    late = len(texts) + stateful.SILENCE_AFTER + 1
    told = []
    for gives_up in (True, False):
        parser = kind()
        found = feed(parser, texts)
        if gives_up:
            found += parser.give_up(late)
        found += feed(parser, [texts[-1], *texts], late) + parser.finish()
        told.append(found)
    assert told[0] == told[1]


def test_a_traceback_that_lacks_its_end_is_waited_for_longer() -> None:
    parser = TracebackParser()
    feed(parser, RAISED)
    assert parser.give_up(stateful.SILENCE) == []
    (event,) = feed(parser, ["ValueError: sample 7 is bad"], stateful.SILENCE) + parser.finish()
    assert event.fields["message"] == "sample 7 is bad"
    feed(parser, RAISED)
    assert parser.give_up(stateful.SILENCE + 4) == [] and not parser.is_open()


def test_the_lines_behind_a_rank_that_died_are_counted(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    peel = LineParser.peel

    def counting(parser: LineParser, text: str) -> Any:
        read.append(text)
        return peel(parser, text)

    monkeypatch.setattr(LineParser, "peel", counting)
    monkeypatch.setattr(stateful, "SILENCE_AFTER", 50)
    monkeypatch.setattr("nccl_triage.parsers.tracebacks.SILENCE_AFTER", 50)
    text = log("quiet", 400_000)
    scan_text(text, rules)
    without = len(read)
    read.clear()
    raised = "".join(f"[rank3]: {line}\n" for line in BLOCKS[TracebackParser])
    found = scan_text(raised + text, rules)
    assert found.events("python.traceback")[0].context.rank == 3
    assert len(read) < without + 600
