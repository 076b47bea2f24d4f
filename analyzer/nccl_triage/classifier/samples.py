"""What the rules' own samples teach: every message that a signature shows as an example, with the cause it speaks for.

They hold the words of messages that no recorded incident has. A sample is a
log of one line without signatures or facts: only its words are learnt.
"""

from __future__ import annotations

from collections import defaultdict

from nccl_triage.classifier.examples import SAMPLE, Example
from nccl_triage.classifier.features import words_of
from nccl_triage.engine.names import expand
from nccl_triage.engine.schema import WEIGHTS, RuleSet

#: A signature teaches the causes for which it is evidence of at least this weight; of more than two it teaches none.
MIN_WEIGHT, MAX_CAUSES = "moderate", 2


def taught(rules: RuleSet) -> list[Example]:
    """Return an example for each sample of a signature and each cause for which the signature speaks most."""
    found = []
    for name, causes in sorted(_spoken_for(rules).items()):
        for number, sample in enumerate(rules.signatures[name].match_samples):
            words = frozenset(words_of(sample))
            for cause in causes if words else ():
                others = tuple(other for other in causes if other != cause)
                found.append(Example(f"{name}/{number}/{cause}", cause, others, name, SAMPLE, words, words))
    return found


def _spoken_for(rules: RuleSet) -> dict[str, list[str]]:
    """Return signature -> the causes for which its strongest evidence speaks."""
    weights: dict[str, dict[str, float]] = defaultdict(dict)
    for cause in rules.causes.values():
        for item in cause.evidence:
            for pattern in item.signatures:
                for name in expand(pattern, rules.kinds):
                    weights[name][cause.id] = max(item.log_odds, weights[name].get(cause.id, 0.0))
    spoken = {}
    for name, by_cause in weights.items():
        most = max(by_cause.values())
        causes = sorted(cause for cause, weight in by_cause.items() if weight == most)
        if most >= WEIGHTS[MIN_WEIGHT] and len(causes) <= MAX_CAUSES:
            spoken[name] = causes
    return spoken
