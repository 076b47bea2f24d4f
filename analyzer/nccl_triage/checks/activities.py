"""What frames of stacks tell: each sample is read as the rule that carries it says."""

from __future__ import annotations

from nccl_triage.checks.finding import Finding, repeats_inside
from nccl_triage.engine.schema import RuleSet


def check_activities(rules: RuleSet) -> list[Finding]:
    """Run the samples of what frames of stacks tell: each is what the first activity that knows it says."""
    findings: list[Finding] = []
    for item in rules.activities.values():
        trap = repeats_inside(item.frame.source)
        messages = [(trap, item.frame.source)] if trap else []
        if not item.match_samples or not item.not_samples:
            messages.append(("needs samples under 'match' and 'not'", ""))
        for sample in item.match_samples:
            first = next((other.id for other in rules.activities.values() if other.frame.search(sample)), "none")
            if first != item.id:
                messages.append((f"its sample is taken by {first}", sample))
        messages += [
            ("matches a sample of 'not'", sample)
            for sample in item.not_samples
            if item.frame.search(sample) is not None
        ]
        findings += [Finding("error", item.where, item.id, text, snippet[:200]) for text, snippet in messages]
    return findings
