"""What the classifier sees of a run."""

from __future__ import annotations

from nccl_triage.classifier.features import extract
from nccl_triage.diagnosis.case import Case
from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import scan_text


def test_what_rules_have_scored_is_no_feature(rules: RuleSet) -> None:
    """Facts are evidence of rows; a vote that restates them would count them twice."""
    text = "".join(f"[rank{n}]: step 1/9 loss 2.1\n" for n in range(4)) + "[rank1]: KeyError: 'a'\n"
    names = extract(Case(scan_text(text, rules), rules)).names
    assert {name.partition(":")[0] for name in names} <= set("wpsrqelj"), names
