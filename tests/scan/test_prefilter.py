"""The prefilter must never lose a line that a signature matches, with and without hyperscan."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from nccl_triage.engine import match
from nccl_triage.engine.schema import RuleSet
from nccl_triage.scan.prefilter import HyperscanPrefilter, LiteralPrefilter, Prefilter, candidates
from tests.prefix_reading import peel


def _samples(rules: RuleSet) -> list[str]:
    return [sample for s in rules.signatures.values() for sample in (*s.match_samples, *s.not_samples)]


def _changed_digits(lines: Sequence[str]) -> list[str]:
    """Return the lines with other digits: shapes stay, values change."""
    chance = random.Random(7)
    return ["".join(chance.choice("0123456789") if c.isdigit() else c for c in line) for line in lines]


def _found(prefilter: Prefilter, lines: Sequence[str]) -> set[tuple[int, str]]:
    found = candidates(prefilter, lines)
    return {
        (index, signature.id)
        for index, signatures in found.items()
        for signature, _ in match.matches(signatures, peel(lines[index]).text, lines[index])
    }


@pytest.fixture(scope="module", params=["hyperscan", "fallback"])
def prefilter(request: pytest.FixtureRequest, rules: RuleSet) -> Prefilter:
    if request.param == "fallback":
        return LiteralPrefilter(rules.signatures.values())
    pytest.importorskip("hyperscan")
    return HyperscanPrefilter(rules.signatures.values())


@pytest.mark.parametrize("perturb", [False, True])
def test_recall_equals_running_every_pattern_on_every_line(prefilter: Prefilter, rules: RuleSet, perturb: bool) -> None:
    lines = [line for line in _samples(rules) if not line.startswith("{")]
    if perturb:
        lines = _changed_digits(lines)
    lines = random.Random(3).sample(lines, 500)
    everything = list(rules.signatures.values())
    expected = {
        (index, signature.id)
        for index, line in enumerate(lines)
        for signature, _ in match.matches(everything, peel(line).text, line)
    }
    assert expected
    assert _found(prefilter, lines) == expected


def test_both_sweep_for_the_same(rules: RuleSet) -> None:
    pytest.importorskip("hyperscan")
    data = "\n".join(_samples(rules)).encode("utf-8", "surrogatepass")
    one, two = (kind(rules.signatures.values()).sweeper()(data) for kind in (HyperscanPrefilter, LiteralPrefilter))
    # One of them tells of each literal once a line.
    assert {data.count(b"\n", 0, end) for end in one.ends} == {data.count(b"\n", 0, end) for end in two.ends}
    assert one.firsts == two.firsts
    assert one.records == two.records


@pytest.mark.parametrize("kind", [HyperscanPrefilter, LiteralPrefilter])
def test_a_sweep_for_less_misses_nothing_that_no_sweep_may_miss(kind: type, rules: RuleSet) -> None:
    if kind is HyperscanPrefilter:
        pytest.importorskip("hyperscan")
    data = "\n".join(['{"a": 1}', "nccl-triage: x", *_samples(rules)]).encode("utf-8", "surrogatepass")
    prefilter = kind(rules.signatures.values())
    full, less = prefilter.sweeper()(data), prefilter.sweeper(quick=True)(data)
    assert less.ends == full.ends
    assert less.firsts.items() < full.firsts.items()
    assert {"NCCL version ", "NCCL INFO comm "} <= {prefilter.texts[number] for number in less.firsts}
    assert (less.records, less.verdicts) == (full.records, full.verdicts) == (True, True)


def test_empty_batches_and_empty_lines(prefilter: Prefilter) -> None:
    assert candidates(prefilter, []) == {}
    assert candidates(prefilter, ["", "", ""]) == {}


def test_characters_outside_ascii_do_not_shift_lines(prefilter: Prefilter) -> None:
    lines = [
        "训练开始 épisode",
        "x NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4f000",
        "结束",
    ]
    assert 1 in candidates(prefilter, lines)
    assert set(candidates(prefilter, lines)) == {1}


@pytest.mark.parametrize("kind", ["hyperscan", "literal"])
def test_a_line_with_only_a_further_literal_is_a_candidate_without_signatures(kind: str, rules: RuleSet) -> None:
    if kind == "hyperscan":
        pytest.importorskip("hyperscan")
    make = HyperscanPrefilter if kind == "hyperscan" else LiteralPrefilter
    prefilter = make(list(rules.signatures.values())[:1], ["quux::"])
    assert candidates(prefilter, ["nothing here", "a quux:: b"]) == {1: ()}
