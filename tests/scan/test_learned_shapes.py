"""What earlier sources taught changes nothing of what a source tells: it is only found sooner."""

from __future__ import annotations

import io
import random
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.execution.engines import scan_sources
from nccl_triage.parsers.wrappers import WrapperProfile
from nccl_triage.scan import learned_shapes, line_parser, shapes
from nccl_triage.scan.learned_shapes import LearnedShapesByProfile
from nccl_triage.scan.line_parser import LineEffect
from nccl_triage.scan.literals import LineKind
from nccl_triage.scan.scanner import Scanner
from nccl_triage.scan.shapes import Shapes
from tests.prefix_reading import PREFIXES, find_sources, sniff
from tests.scan.test_shapes import other_digits, plain
from tests.scan_helpers import log, scan_text

LOGS = Path(__file__).parents[2] / "corpus" / "written" / "logs"


def by_process(text: str) -> dict[str, str]:
    """Return what each process printed into a log."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines(keepends=True):
        if (process := re.match(r"\(\w+ pid=(\d+)", line)) is not None:
            found[process[1]].append(line)
    return {name: "".join(lines) for name, lines in found.items() if len(lines) > 20}


@pytest.mark.parametrize("seed", range(2))
def test_logs_of_many_ranks(seed: int, rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "PATIENCE", 2)
    together = Scanner(rules)
    logs = by_process(log("storm", 1_500_000, seed))
    assert len(logs) > 20
    for name, text in list(logs.items())[:40]:
        assert plain(scan_text(text, rules, name, together)) == plain(scan_text(text, rules, name))


@pytest.mark.parametrize("seed", range(3))
def test_lines_of_incidents_under_many_names(seed: int, rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "PATIENCE", 2)
    chance, together = random.Random(seed), Scanner(rules)
    lines = [
        line
        for path in chance.sample(sorted(LOGS.glob("*.log")), 20)
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        # Other digits make stamps that no clock shows, of which no time is learnt.
        if line.strip() and re.search(r"\d\d:\d\d", line) is None
    ]
    for number in range(6):
        text = "\n".join(other_digits(line, chance) for line in chance.sample(lines, 40) for _ in range(6))
        name = f"log{number}"
        assert plain(scan_text(text, rules, name, together)) == plain(scan_text(text, rules, name))


def test_less_is_read_of_the_next_source(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    outcome = line_parser.LineParser.effect

    def counting(*given: Any) -> Any:
        tried.append(given)
        return outcome(*given)

    monkeypatch.setattr(line_parser.LineParser, "effect", counting)
    line = "gpu1:{}:7 [{}] socket.cc:540 NCCL WARN Net : Connection closed by remote peer n{}<{}>\n"
    text = "".join(line.format(100 + n % 4, n % 4, n % 10, 40_000 + n % 7) for n in range(400))
    together = Scanner(rules)
    scan_text(text, rules, "a", together)
    assert tried
    tried.clear()
    scan_text(text, rules, "b", together)
    assert not tried
    # Other prefixes, other shapes.
    scan_text("".join(f"{n % 4}: {one}\n" for n, one in enumerate(text.splitlines())), rules, "c", together)
    assert tried


def test_what_is_remembered_is_bounded(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_shapes, "MAX_SHAPES", 5)
    monkeypatch.setattr(learned_shapes, "MAX_PROFILES", 3)
    monkeypatch.setattr(shapes, "PATIENCE", 2)
    together = Scanner(rules)
    for number in range(3):
        scan_text(log("storm", 300_000, number), rules, f"log{number}", together)
    assert all(len(known.shapes) <= 5 for _, known in together.learned._known)
    lores = LearnedShapesByProfile(PREFIXES)
    first = lores.of(WrapperProfile(frozenset({"srun"})))
    assert lores.of(WrapperProfile(frozenset({"srun"}))) is first
    for name in "abcd":
        lores.of(WrapperProfile(names=frozenset({name})))
    assert len(lores._known) == 3
    assert lores.of(WrapperProfile(frozenset({"srun"}))) is not first


def test_what_is_shown_does_not_hang_on_what_was_read_before(rules: RuleSet) -> None:
    """One process that diagnoses the same log twice says the same; each NUL makes a block, most of which are swept."""
    lines = [
        f"node0:1:1 [0] NCCL INFO RAS client listening socket at ::1<{28028 + n}>\n"
        f"node0:1:1 [0] NCCL INFO ncclCommInitRank comm 0x{n:x} rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1901000 commId 0x47 - Init START\0\n"
        for n in range(200)
    ]

    def once() -> Any:
        sources = find_sources(["-"], io.BytesIO("".join(lines).encode()))[0]
        return scan_sources(sources, rules).buckets

    assert once() == once()


def test_each_length_of_a_number_is_tried_once_not_each_combination(
    rules: RuleSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[bytes] = []
    effect = Shapes._effect

    def counted(self: Shapes, raw: bytes) -> tuple[LineKind | None, LineEffect | None]:
        tried.append(raw)
        return effect(self, raw)

    monkeypatch.setattr(Shapes, "_effect", counted)
    chance = random.Random(3)

    def number() -> str:
        return str(chance.randrange(10 ** chance.randint(1, 6)))

    lines = [f"step {number()} loss {number()} lr {number()} tokens {number()} time {number()}" for _ in range(4000)]
    scan_text("\n".join(lines) + "\n", rules)
    # Five numbers of six lengths each have 7,776 combinations.
    assert len(tried) < 200


def test_a_length_that_matters_is_not_taken_for_granted(rules: RuleSet) -> None:
    lines = [f"[rank{n % 4}]: step {n} loss {n % 10}.5" for n in range(400)] + ["[rank11]: step 400 loss 2.5"] * 12
    found = scan_text("\n".join(lines) + "\n", rules)
    assert {event.context.rank for event in found.all_events()} >= {0, 1, 2, 3, 11}


def test_a_few_lines_are_sniffed_once_for_all_that_begin_so(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(PREFIXES, "sniff", lambda lines: asked.append(1) or sniff(lines))
    learned = LearnedShapesByProfile(PREFIXES)

    def head(rank: int, word: str = "iteration") -> list[str]:
        return [f"2026-01-01 10:00:{n:02d} {word} {n + 100 * rank} | loss 2.{rank}{n:02d}" for n in range(60)]

    for rank in range(8):
        learned.of(learned.sniff(head(rank)))
    told = len(asked)
    assert told <= 4  # the first source has shorter numbers
    assert learned.known(head(8)) is not None
    assert len(asked) == told
    learned.known(head(9, "another"))
    assert len(asked) == told + 1


def test_lines_whose_digits_tell_who_speaks_are_sniffed_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(PREFIXES, "sniff", lambda lines: asked.append(1) or sniff(lines))
    learned = LearnedShapesByProfile(PREFIXES)
    for source in range(6):
        before = len(asked)
        learned.sniff([f"{(n + source) % 4}: step {n} of {source}" for n in range(60)])
        assert len(asked) > before
