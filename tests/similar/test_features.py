"""What is compared of two runs."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.facts import software
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.store import Observations
from nccl_triage.similar.features import extract
from tests.scan_helpers import scan_text


def features_of(observations: Observations, rules: RuleSet) -> set[str]:
    case = Case(observations, rules)
    return extract(case, software.programs(case))


def test_what_rules_have_scored_is_no_feature(rules: RuleSet) -> None:
    """Facts are evidence of rows; a vote that restates them would count them twice."""
    text = "".join(f"[rank{n}]: step 1/9 loss 2.1\n" for n in range(4)) + "[rank1]: KeyError: 'a'\n"
    names = features_of(scan_text(text, rules), rules)
    assert {name.partition(":")[0] for name in names} <= set("wpsrqelj"), names


def test_of_failures_only_those_of_the_suspect_count(rules: RuleSet) -> None:
    suspect = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    victim = "[rank0]: RuntimeError: Connection closed by peer [10.0.0.1]:1000\n"
    alone = features_of(scan_text(suspect, rules), rules)
    assert features_of(scan_text(suspect + victim, rules), rules) == alone
    assert features_of(scan_text(victim + suspect, rules), rules) == alone


def test_without_a_known_rank_all_failures_count(rules: RuleSet) -> None:
    text = "RuntimeError: Connection closed by peer [10.0.0.1]:1000\nValueError: gargoyle\n"
    assert "w:gargoyle" in features_of(scan_text(text, rules), rules)
