"""The shipped rules are well by everything that ``rules test`` checks, and its lint of patterns can fail."""

from __future__ import annotations

from pathlib import Path

from nccl_triage.checks import samples
from nccl_triage.engine.schema import RuleSet
from nccl_triage.evaluation import checkout
from nccl_triage.evaluation.suite import check_all

ROOT = Path(__file__).parents[2]


def test_all_samples_lints_and_names(rules: RuleSet) -> None:
    assert [finding.show() for finding in [*check_all(rules), *samples.check_harmless(rules)]] == []


def test_the_checkout_has_what_its_causes_need(rules: RuleSet) -> None:
    """Labelled cases, pages, incidents, and schemas that accept the files."""
    assert checkout.find() == ROOT
    assert [finding.show() for finding in checkout.check(rules, ROOT)] == []


def test_the_trap_is_linted(rules: RuleSet) -> None:
    from nccl_triage.engine.pattern import Pattern

    signature = next(iter(rules.signatures.values()))
    trapped = signature._replace(id="x.trap", pattern=Pattern("(?i)ECC.*DBE"))
    assert samples.check_traps(RuleSet({"x.trap": trapped}, {}, ""))
    assert Pattern("(?i)ECC.*DBE").compiled.search("comm 0x950feccdbe rank 0")
    slow = signature._replace(id="x.slow", pattern=Pattern(r"abc(x+)+y"))
    assert samples.check_traps(RuleSet({"x.slow": slow}, {}, ""))


def test_hardware_signatures_do_not_match_inside_pointers(rules: RuleSet) -> None:
    from nccl_triage.engine import match

    line = "gpu07:4120:4388 [2] NCCL INFO comm 0x950feccdbe rank 3 nranks 16 cudaDev 3 busId ab000 - Init COMPLETE"
    found = [s.id for s, _ in match.matches(rules.signatures.values(), line, line)]
    assert found == ["nccl.init_complete"]
