"""The proof on faulty worlds: what is wanted of each agrees with the causes' files, and the counts mean what they say."""

from __future__ import annotations

import pytest

from corpus.verifier.kinds import EIGHT, KINDS, Kind
from corpus.verifier.prove import Shot, false_alarms, gone, summary
from nccl_triage.engine.schema import RuleSet

BY_NAME = {kind.name: kind for kind in KINDS}


def shot(outcome: str, right: bool = True) -> Shot:
    return Shot(outcome, "row", [], [], [], right, right, 1.0)


def test_the_table_of_eight_is_made_of_kinds_that_exist() -> None:
    assert len(BY_NAME) == len(KINDS), "each kind has a name of its own"
    assert len(set(EIGHT)) == len(EIGHT) == 20 and set(EIGHT) <= set(BY_NAME)
    assert sum(BY_NAME[name].healthy for name in EIGHT) == 7


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.name.startswith("healthy-hosts-")], ids=lambda kind: kind.name
)
def test_a_healthy_present_refutes_only_what_cannot_be_gone(kind: Kind, rules: RuleSet) -> None:
    wanted = {"refutes": "refuted", "not-reproduced": "not-reproduced"}
    assert kind.outcome == wanted[rules.causes[kind.cause].experiment.passing]
    assert gone(kind) == (kind.outcome == "not-reproduced")


def test_faults_with_a_direction_say_it() -> None:
    ways = [BY_NAME[name].says for name in ("firewall-one-way", "firewall-other-way", "packets-one-way")]
    assert len(set(ways)) == 3 and all("gpu-node" in says for says in ways)


def test_what_must_not_be_is_counted() -> None:
    kinds = [
        BY_NAME["healthy-hosts-network-link-fault"],
        BY_NAME["healthy-hosts-network-firewall-port"],
        BY_NAME["sigkill"],
    ]
    results = {
        kinds[0].name: [shot("refuted", False), shot("not-reproduced"), shot("confirmed", False)],
        kinds[1].name: [shot("refuted")],
        kinds[2].name: [shot("confirmed"), shot("refuted", False)],
    }
    assert false_alarms(kinds, results) == (1, 2), "a crash may be gone as well"
    assert "3 of 6 verdicts right" in summary(kinds, results)
