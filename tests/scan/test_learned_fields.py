"""What a positions reads of a line is what reading it in full finds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from nccl_triage.engine import match, regex_analysis
from nccl_triage.engine.schema import RuleSet, Signature
from nccl_triage.parsers.wrappers import WrapperProfile
from nccl_triage.scan import learned_fields
from nccl_triage.scan.digit_folding import NUMBER
from nccl_triage.scan.line_parser import ParsedLine
from nccl_triage.scan.literals import LineKind
from nccl_triage.scan.prefilter import Prefilter, make_prefilter
from tests.prefix_reading import peel

CORPUS = Path(__file__).parents[2] / "corpus"
NCCL = "(RayWorker pid={pid}, ip=10.0.{rank}.4) [rank{rank}]: gpu-{host}:{pid}:{tid} [{dev}] NCCL INFO comm 0x55{hex} rank {rank} nranks 16"


def _reader(profile: WrapperProfile | None = None) -> learned_fields.Reader:
    def read(line: str, signatures: Iterable[Signature]) -> ParsedLine:
        peeled = peel(line, profile or WrapperProfile())
        return ParsedLine(peeled, list(match.matches(signatures, peeled.text, line)))

    return read


def _minding(kind: LineKind) -> tuple[Signature, ...]:
    signatures = kind.signatures or ()
    return tuple(
        one for one in signatures if one.premise is not None or regex_analysis.depends_on_digits(one.pattern.source)
    )


def _corpus() -> Iterator[str]:
    """Yield lines of recorded failures that differ in more than digits, in no particular order."""
    logs = sorted(CORPUS.glob("*/logs/*.log"))
    Random(7).shuffle(logs)
    known: set[str] = set()
    for log in logs:
        for line in log.read_bytes().decode("utf-8", "replace").split("\n"):
            folded = re.sub(r"[0-9]+", "0", line)
            if folded not in known and len(line) < 2000 and not line.startswith(("{", " ")):
                known.add(folded)
                yield line


def _with_other_digits(line: str, chance: Random) -> str:
    """Return a line some of whose numbers, times among them, are others of the same length; pointers stay pointers."""

    def other(found: re.Match[str]) -> str:
        size = len(found[0])
        return found[0] if chance.random() < 0.5 else str(chance.randrange(10**size)).zfill(size)

    return re.sub(r"(?<![0-9x])(?!0x)[0-9]+", other, line)


#: What may stand before, in or behind a line: prefixes, colours, numbers that are none, or too long.
ODD = (
    *("\x1b[36m", "\x1b[0m", "１２", "\u0663", "-5", " 0x1f ", "0x", "10x55", "\ufffd", "9" * 20, "1.5e300", "<6>", "3: ", "[2] "),
    *("[rank3]: ", "(pid=12) ", "(Actor pid=3, ip=1.2.3.4) ", "2026-01-02 03:04:05,678 ", "I0102 03:04:05.678 12 a.cc:5] "),
    *("rank=7 ", "[PG 0 Rank 3] ", " [repeated 3x across cluster]", "Jan  2 03:04:05 host5 kernel: ", "[4 similar log lines] "),
)  # fmt: skip


def _spoilt(line: str, chance: Random) -> str:
    at = chance.choice((0, len(line), chance.randrange(len(line) + 1)))
    return line[:at] + chance.choice(ODD) + line[at:]


@pytest.mark.parametrize("spoilt", [False, True])
def test_lines_of_real_failures(spoilt: bool, rules: RuleSet) -> None:
    prefilter = make_prefilter(rules.signatures.values())
    read, chance = _reader(), Random(11)
    learnt = tried = 0
    for whole in islice(_corpus(), 1000):
        line = _spoilt(_spoilt(whole, chance), chance) if spoilt else whole
        kind = prefilter.kinds([line]).get(0)
        if kind is None:
            continue
        positions = learned_fields.learn(line, kind, _minding(kind), read)
        if positions is None:
            continue
        learnt += 1
        for other in (line, *(_with_other_digits(line, chance) for _ in range(3))):
            mine = positions.read(other)
            if mine is not None and prefilter.kinds([other]).get(0) is kind:
                full = read(other, kind.signatures or ())
                assert mine.peeled == full.peeled, other
                assert [(one.id, fields) for one, fields in mine.found] == [(s.id, f) for s, f in full.found], other
                tried += 1
    assert learnt > 200
    assert tried > 2 * learnt


def _edges(line: str) -> list[int]:
    return [edge for found in NUMBER.finditer(line.encode()) for edge in found.span()]


def _with_other_lengths(line: str, chance: Random) -> str:
    """Return a line some of whose numbers, but for those of times, are longer or shorter."""

    def other(found: re.Match[str]) -> str:
        size = max(1, len(found[0]) + chance.randint(-2, 3))
        return str(chance.randrange(10**size)) if chance.random() < 0.5 else found[0]

    return re.sub(r"(?<![0-9x:.-])(?!0x)[0-9]+(?![0-9:-])", other, line)


def test_positions_move_with_the_lengths_of_numbers(rules: RuleSet) -> None:
    prefilter = make_prefilter(rules.signatures.values())
    read, chance = _reader(), Random(13)
    tried = moved = 0
    for line in islice(_corpus(), 1000):
        kind = prefilter.kinds([line]).get(0)
        learned = None if kind is None or not line.isascii() else learned_fields.learn(line, kind, _minding(kind), read)
        if kind is None or learned is None:
            continue
        positions = learned_fields.PositionsByNumber(learned, _edges(line))
        for _ in range(4):
            other = _with_other_lengths(line, chance)
            if len(_edges(other)) != len(_edges(line)) or prefilter.kinds([other]).get(0) is not kind:
                continue
            tried += 1
            mine = positions.in_line(other, _edges(other), kind.signatures or (), read)
            said = None if mine is None else mine.read(other)
            if said is None:
                continue
            moved += 1
            full = read(other, kind.signatures or ())
            assert said.peeled == full.peeled, other
            assert [(one.id, fields) for one, fields in said.found] == [(s.id, f) for s, f in full.found], other
    assert moved > 500 and moved > tried // 2


def test_where_longer_numbers_are_read_in_another_way_no_position_is_believed(prefilter: Prefilter) -> None:
    line = "worker 12 says RuntimeError: NCCL error 5 in: run.cpp:12"
    kind = prefilter.kinds([line])[0]
    learned = _positions(line, prefilter)
    assert learned is not None
    positions = learned_fields.PositionsByNumber(learned, _edges(line))
    other = line.replace("12 says", "123 says")
    odd = _reader()

    def in_another_way(text: str, signatures: Iterable[Signature]) -> ParsedLine:
        parsed = odd(text, signatures)
        parsed.peeled.context.rank = 7
        return parsed

    assert positions.in_line(line, _edges(line), kind.signatures or (), odd) is not None
    assert positions.in_line(other, _edges(other), kind.signatures or (), in_another_way) is None
    assert positions.in_line(line, _edges(line), kind.signatures or (), odd) is None


@pytest.fixture
def prefilter(rules: RuleSet) -> Prefilter:
    return make_prefilter(rules.signatures.values())


def _positions(
    line: str, prefilter: Prefilter, profile: WrapperProfile | None = None
) -> learned_fields.FieldPositions | None:
    kind = prefilter.kinds([line])[0]
    return learned_fields.learn(line, kind, _minding(kind), _reader(profile))


def test_equal_numbers_are_told_apart(prefilter: Prefilter) -> None:
    same = NCCL.format(pid=7, rank=7, host=7, tid=7, dev=7, hex="7")
    positions = _positions(same, prefilter)
    assert positions is not None
    reading = positions.read(NCCL.format(pid=1, rank=2, host=3, tid=4, dev=5, hex="6"))
    assert reading is not None
    context = reading.peeled.context
    assert (context.pid, context.rank, context.tid, context.gpu) == (1, 2, 4, 5)
    assert context.address == "10.0.2.4"


def test_what_is_worked_out_is_read_in_full(prefilter: Prefilter) -> None:
    assert _positions("[5 similar log lines] RuntimeError: NCCL error 7 in: run.cpp:12", prefilter) is None


def test_a_name_that_is_looked_up_is_read_in_full(prefilter: Prefilter) -> None:
    line = "node17: RuntimeError: NCCL error in: run.cpp:12, unhandled system error"
    assert _positions(line, prefilter) is not None
    assert _positions(line, prefilter, WrapperProfile(frozenset({"node"}), frozenset({"node17", "node18"}))) is None


def test_a_stamp_that_is_none_is_read_in_full(prefilter: Prefilter) -> None:
    line = "2026-05-04 10:11:12,345 ERROR train.py:17 -- RuntimeError: NCCL error in: run.cpp:12"
    positions = _positions(line, prefilter)
    assert positions is not None
    good, bad = (
        positions.read(line.replace("10:11:12,345", "23:59:58,001")),
        positions.read(line.replace("-05-", "-15-")),
    )
    assert good is not None
    assert good.peeled.context.time == peel(line.replace("10:11:12,345", "23:59:58,001")).context.time
    assert bad is None
