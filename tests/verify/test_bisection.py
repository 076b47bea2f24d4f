"""Nobody stands out: the session halves the hosts until it has found the one, and tries without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.engine import load
from nccl_triage.verify import plan
from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.conduct import carry_out
from nccl_triage.verify.judge import Trial
from nccl_triage.verify.model import Finding, Place, RankTrace, RunResult
from nccl_triage.verify.plan import Means, Wishes
from nccl_triage.verify.question import Question, Suspect
from nccl_triage.verify.reachability import Matrix
from nccl_triage.verify.trials import Session

HOSTS = tuple(f"node{index}" for index in range(6))


class Imagined(Session):
    """A session whose runs fail when a rule about their hosts says so; everything else is the real one."""

    def __init__(self, rule) -> None:
        question = Question(
            (Suspect("network-link-fault", "supported", 0.7),), op="ALLREDUCE", numel=1024, world=6, hosts=HOSTS
        )
        places = tuple(Place(name, ("ssh", name)) for name in HOSTS)
        rules = load.load(())
        made = plan.build(question, rules.causes, Means(places, torch="2.13.0"), Wishes(backend="gloo"))
        super().__init__(Cluster(_Nowhere(places)), made, rules, Path())
        self.rule = rule
        self.runs = []
        entry = {
            "name": "eth0",
            "up": True,
            "loopback": False,
            "default": True,
            "netmask": "255.255.255.0",
            "mtu": 1500,
        }
        self.cluster.facts = [
            {"interfaces": [{**entry, "address": f"10.0.0.{index + 1}"}], "own_addresses": [f"10.0.0.{index + 1}"]}
            for index in range(6)
        ]
        self.report.matrix = Matrix()

    def prepare(self, backend, probes):
        pass

    def trial(self, run, index, planned):
        hosts = tuple(HOSTS[place] for place in run.places)
        self.runs.append(hosts)
        bad = self.rule(hosts)
        traces = {rank: RankTrace(rank, slot) for rank, slot in enumerate(run.slots)}
        result = RunResult(run, "error" if bad else "passed", "warm" if bad else "end", 1.0, traces)
        finding = Finding("network-link-fault", "collective-failed", {"en": "", "zh": ""}) if bad else None
        return Trial(result, finding)


class _Nowhere:
    def __init__(self, places) -> None:
        self.places = places


@pytest.mark.parametrize("guilty", HOSTS)
def test_one_host_is_found_and_the_rest_passes_without_it(guilty):
    session = Imagined(lambda hosts: guilty in hosts and len(hosts) > 1)
    (outcome,) = carry_out(session).outcomes
    assert outcome.narrowed["kind"] == "one"
    assert outcome.narrowed["hosts"] == [guilty]
    assert outcome.row.outcome == "confirmed"
    assert set(HOSTS) - {guilty} in [set(hosts) for hosts in session.runs]


def test_a_pair_that_fails_only_together_is_found():
    session = Imagined(lambda hosts: {"node1", "node4"} <= set(hosts))
    (outcome,) = carry_out(session).outcomes
    assert outcome.narrowed["kind"] == "pair"
    assert set(outcome.narrowed["hosts"]) == {"node1", "node4"}


def test_when_every_group_fails_nobody_is_blamed_alone():
    session = Imagined(lambda hosts: len(hosts) > 1)
    (outcome,) = carry_out(session).outcomes
    assert outcome.narrowed["kind"] != "one"
