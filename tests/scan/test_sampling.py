"""A long log whose middle is only looked through: nothing that decides is missed."""

from __future__ import annotations

import io
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.document.diagnosis import diagnose_observations
from nccl_triage.engine.schema import RuleSet
from nccl_triage.ingest.decode import LineReader
from nccl_triage.observations.store import Observations, SourceInfo
from nccl_triage.parsers.counters import COUNTER
from nccl_triage.scan import interest as interest_module
from nccl_triage.scan import sampling
from nccl_triage.scan.event_collector import SPEAKER
from nccl_triage.scan.prefilter import LiteralPrefilter
from nccl_triage.scan.scanner import Scanner
from tests.scan_helpers import log

LOGS = Path(__file__).parents[2] / "corpus" / "written" / "logs"
FALLBACK = "NCCL_TRIAGE_NO_HYPERSCAN"


@pytest.fixture(params=["hyperscan", "fallback"])
def scanner(request: pytest.FixtureRequest, rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> Scanner:
    if request.param == "fallback":
        monkeypatch.setenv(FALLBACK, "1")
    else:
        pytest.importorskip("hyperscan")
    return Scanner(rules)


def scan(scanner: Scanner, text: str, whole: bool = False) -> Observations:
    """Scan a text in blocks of some kilobytes, or line by line."""
    info = SourceInfo("log")
    reader = LineReader(io.BytesIO(text.encode()), info, max_line=2048, block=4096)
    return scanner.scan(reader, info) if whole else scanner.scan_blocks(reader, info)


def exact(observations: Observations) -> dict[str, Any]:
    """Return what must be the same however a log is read."""
    return {
        name: (observations.count(name), events)
        for name in observations.signatures()
        if (events := observations.events(name))[0].is_failure
    }


def told(observations: Observations) -> dict[str, int]:
    """Return the signatures that were seen, and where first.

    Counters are looked for in the last lines, of which these small blocks hold too few.
    """
    seen = set(observations.signatures()) - {SPEAKER, COUNTER}
    return {name: observations.events(name)[0].line for name in sorted(seen)}


def test_storms_are_counted_exactly(scanner: Scanner, rules: RuleSet) -> None:
    text = log("storm", 250_000)
    assert exact(scan(scanner, text)) == exact(scan(scanner, text, whole=True))


@pytest.mark.parametrize("seed", range(4))
def test_incidents_in_the_middle_of_much_else(seed: int, scanner: Scanner, rules: RuleSet) -> None:
    chance = random.Random(seed)
    filler = log("verbose", 150_000, seed).splitlines()
    path = chance.choice(sorted(LOGS.glob("*.log")))
    incident = path.read_text(encoding="utf-8", errors="replace").splitlines()
    text = "\n".join([*filler[:500], *incident, *filler[500:]]) + "\n"
    swept, whole = scan(scanner, text), scan(scanner, text, whole=True)
    assert exact(swept) == exact(whole)
    assert told(swept) == told(whole)
    assert swept.has("training.step_loss")
    assert diagnose_observations(swept, rules).cause == diagnose_observations(whole, rules).cause


def test_blocks_that_span_lines_go_on_behind_a_block_of_bytes(scanner: Scanner, rules: RuleSet) -> None:
    filler = log("verbose", 100_000).splitlines()[:700]
    frames = [f'[rank3]:   File "/opt/app/step{n}.py", line {n}, in run\n[rank3]:     run({n})' for n in range(200)]
    block = ["[rank3]: Traceback (most recent call last):", *frames, "[rank3]: ValueError: sample 7 is bad"]
    text = "\n".join([*filler, *block, *filler]) + "\n"
    (event,) = scan(scanner, text).events("python.traceback")
    assert event.line == len(filler) + 402
    assert (event.fields["type"], event.fields["message"]) == ("ValueError", "sample 7 is bad")


def test_records_are_read_whole(scanner: Scanner, rules: RuleSet) -> None:
    filler = log("quiet", 200_000).splitlines()
    record = '{"log": "gpu1:7:7 [1] socket.cc:540 NCCL WARN Net \\u003a Connection closed by remote peer n1<40001>\\n"}'
    text = "\n".join([*filler, record, *filler]) + "\n"
    assert exact(scan(scanner, text)) == exact(scan(scanner, text, whole=True))


def test_redrawn_lines_are_read_whole(scanner: Scanner, rules: RuleSet) -> None:
    filler = log("quiet", 200_000).splitlines()
    bar = "\r".join(f"{n:3d}%|####      | {n}/100 [00:01<00:02, 3.1it/s]" for n in range(100))
    fault = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    text = "\n".join([*filler, f"{bar}\r{fault}", *filler]) + "\n"
    assert exact(scan(scanner, text)) == exact(scan(scanner, text, whole=True))


def test_progress_is_sampled_and_its_end_is_known(scanner: Scanner) -> None:
    lines = [f"[rank{n % 4}]: step {n}/9000 loss {5 - n / 3000:.4f} lr 1e-4 900 tok/s" for n in range(5000)]
    found = scan(scanner, "\n".join(lines) + "\n")
    events = found.events("training.step_loss")
    assert events[0].line == 1
    assert events[-1].line == 5000
    assert found.count("training.step_loss") < 2500
    assert {event.context.rank for event in events} == {0, 1, 2, 3}


@pytest.mark.parametrize("at", range(60, 6000, 540))
def test_context_with_a_literal_that_is_new_is_seen_in_any_block(scanner: Scanner, at: int) -> None:
    filler = [f"worker {n} idle, queue {n % 7}" for n in range(6000)]
    filler[at] = "NCCL version 2.27.5+cuda12.9"
    assert scan(scanner, "\n".join(filler) + "\n").events("nccl.version_banner")[0].line == at + 1


@pytest.mark.parametrize("at", range(60, 6000, 540))
def test_a_fault_is_seen_in_any_block(scanner: Scanner, at: int) -> None:
    filler = [f"worker {n} idle, queue {n % 7}" for n in range(6000)]
    filler[at] = "[rank5]: torch.OutOfMemoryError: CUDA out of memory."
    (found,) = scan(scanner, "\n".join(filler) + "\n").events("python.exception_line")
    assert (found.line, found.context.rank) == (at + 1, 5)


def test_our_own_verdicts_in_the_middle_tell_nothing(scanner: Scanner) -> None:
    verdict = ["nccl-triage: A GPU ran out of memory (rank 3)."]
    verdict += [
        f"    a.log:{n}: [rank3]: torch.OutOfMemoryError: CUDA out of memory." for n in range(200)
    ]  # some blocks
    filler = [f"worker {n} idle, queue {n % 7}" for n in range(4000)]
    text = "\n".join([*filler, *verdict, *filler, "Killed by signal 15.", *verdict[:9], *filler]) + "\n"
    found = scan(scanner, text)
    assert "torch.oom" not in "".join(found.signatures()).lower()
    assert found.signatures() == scan(scanner, text, whole=True).signatures()
    # What stands behind it, or has another beginning, counts.
    other = text.replace("    a.log:150: [rank3]:", "[rank3]:")
    assert exact(scan(scanner, other)) == exact(scan(scanner, other, whole=True)) != {}


def test_both_matchers_find_the_same_lines(rules: RuleSet) -> None:
    pytest.importorskip("hyperscan")
    fast = Scanner(rules)._prefilter
    slow = LiteralPrefilter(rules.signatures.values())
    for path in random.Random(2).sample(sorted(LOGS.glob("*.log")), 12):
        data = path.read_bytes()
        lines = data.count(b"\n")

        def numbers(ends: list[int], data: bytes = data) -> set[int]:
            return {data.count(b"\n", 0, end) for end in ends}

        urgent = numbers(fast.sweeper()(data).ends)
        assert numbers(slow.sweeper()(data).ends) <= urgent <= set(range(lines + 1))


def test_few_blocks_of_a_long_log_are_read_whole() -> None:
    chosen = [ordinal for ordinal in range(100_000) if sampling.coverage_of(ordinal) is not sampling.Coverage.NEWS]
    assert chosen[: sampling.HEAD] == list(range(sampling.HEAD))
    assert len(chosen) < 50
    assert max(b / a for a, b in pairwise(chosen[1:])) <= 2


def test_news_are_what_the_block_before_did_not_say() -> None:
    news = interest_module.News()
    assert news.of([1, 2]) == [1, 2]
    assert news.of([1]) == [1]
    assert news.of([1, 2]) == [2]
    assert [bool(news.of([1])) for _ in range(6)] == [True, False, False, False, True, False]


def test_what_tells_nothing_new_is_followed_no_longer_until_it_does() -> None:
    interest = interest_module.Interest()
    assert interest.of([1, 2]) == [1, 2]
    interest.learn({1: 2 * interest_module.PATIENCE, 2: 2 * interest_module.PATIENCE}, {2: interest_module.PATIENCE})
    assert interest.of([1, 2]) == [2]
    assert interest.glances([1, 2]) == [1]
    interest.learn({1: 1}, {1: 1})
    assert interest.of([1, 2]) == [1, 2]


def test_where_nothing_is_new_some_blocks_are_left_out_until_something_is() -> None:
    interest = interest_module.Interest()

    def left_out() -> int:
        number = 0
        while not interest.awake():
            number += 1
        return number

    strides = []
    for _ in range(4):
        interest.learn({1: 5, 2: 1}, {-1: 3})  # what is told of no literal that was read is no news
        strides.append(left_out())
    assert strides == [1, 3, 7, 15]
    interest.learn({1: 5}, {})
    assert left_out() == interest_module.STRIDE == 15
    interest.learn({1: 5, 2: 1}, {2: 1})
    assert left_out() == 15 // interest_module.LESS
    # Much news in a block that was searched for little: the next one is searched for all.
    interest.learn({}, {})
    assert not interest.awake()
    interest.learn({1: 1}, {1: 1}, all_searched=False)
    assert not interest.awake()
    interest.learn({1: 9}, {1: interest_module.MUCH}, all_searched=False)
    assert left_out() == 0


def test_bad_bytes_are_counted_in_blocks_that_wait(rules: RuleSet) -> None:
    for data in (b"a \xff b\n" * 3, b"a \xff b\n" * 9000):
        info = SourceInfo("log")
        Scanner(rules).scan_blocks(LineReader(io.BytesIO(data), info, max_line=2048, block=4096), info)
        (problem,) = info.problems
        assert "not valid UTF-8" in problem


def test_a_literal_whose_lines_match_nothing_is_not_looked_at_until_one_does() -> None:
    interest = interest_module.Interest()
    for _ in range(interest_module.PATIENCE):
        assert interest.speaking([1, 2, 3]) == [1, 2, 3]
        interest.hear(1, said=False)
        interest.hear(2, said=True)
    assert interest.speaking([1, 2, 3]) == [2, 3]
    for _ in range(2 * interest_module.PATIENCE):
        interest.hear(2, said=False)
    assert interest.speaking([1, 2]) == [2]
