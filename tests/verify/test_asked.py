"""What a plan tells of an experiment: the collective, its bytes, who is contacted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.hosts.links import HostPlace
from nccl_triage.verify import asked, plan
from nccl_triage.verify.collective_run import CollectiveMessage
from nccl_triage.verify.means import Means
from nccl_triage.verify.plan import Plan, PlanOptions
from nccl_triage.verify.question import Question, SuspectedCause

ASKED = Question((), op="ALLREDUCE", numel=64, dtype="float16", world=2, hosts=("a", "b"), port=29500, master="10.0.0.9",
                 addresses={"a": ("10.0.0.1",)})  # fmt: skip
TWO = Means.alike((HostPlace("a"), HostPlace("b")), torch="2.13.0")


def planned(rules: RuleSet, *causes: str, means: Means = TWO, question: Question = ASKED) -> Plan:
    suspects = tuple(SuspectedCause(cause, "supported", 0.6) for cause in causes)
    return plan.build(replace(question, suspects=suspects), rules.causes, means, PlanOptions(suspects=5))


@pytest.mark.parametrize(
    ("op", "root", "from_root", "pair"),
    [
        ("BROADCAST", 1, True, None),
        ("SCATTER", 1, True, None),
        ("REDUCE", 1, False, None),
        ("GATHER", 1, False, None),
        ("ALLREDUCE", None, None, None),
        ("SEND", None, None, [0, 1]),
    ],
)
def test_a_collective_says_from_and_to_whom(
    op: str, root: int | None, from_root: bool | None, pair: list[int] | None
) -> None:
    told = asked.collective(CollectiveMessage(op, 10, "float64", root=1))
    assert (told["root"], told["from_root"], told["pair"]) == (root, from_root, pair)
    assert told["bytes"] == 80


def test_what_no_collective_can_show_is_not_asked(rules: RuleSet) -> None:
    made = planned(rules, "gpu-out-of-memory")
    assert asked.asked(made.experiments[0], made) is None


def test_an_experiment_as_it_is_asked(rules: RuleSet) -> None:
    made = planned(rules, "network-firewall-port")
    told = asked.asked(made.experiments[0], made)
    assert told is not None
    assert (told["hosts"], told["ranks_per_host"], told["world_known"], told["size_known"]) == (
        ["a", "b"],
        [1, 1],
        True,
        True,
    )
    assert told["collective"]["bytes"] == 128
    assert told["further"] == []
    assert told["treatments"] == [{"changed": "with all ranks on one host", "changed_zh": "所有 rank 放在同一台主机内"}]


def test_the_ports_and_addresses_that_are_contacted(rules: RuleSet) -> None:
    told = asked.contacts(planned(rules, "network-firewall-port"), ["ssh", ""])
    assert told["hosts"] == [
        {"name": "a", "addresses": ["10.0.0.1"], "by": "ssh"},
        {"name": "b", "addresses": [], "by": ""},
    ]
    assert told["store"] == {"host": "a", "ports": [None]}
    assert told["probe"] == {"ports_per_address": 20, "port_of_log": 29500}
    assert told["elsewhere"] == []


def test_the_port_of_the_log_and_an_address_of_nobody_are_told(rules: RuleSet) -> None:
    told = asked.contacts(planned(rules, "network-firewall-port", "rendezvous-failed"), [])
    assert told["store"] == {"host": "a", "ports": [29500, None]}
    assert told["elsewhere"] == ["10.0.0.9"]
    own = replace(ASKED, master="10.0.0.1")
    assert asked.contacts(planned(rules, "rendezvous-failed", question=own), [])["elsewhere"] == []


def test_nothing_is_contacted_where_nothing_runs(rules: RuleSet) -> None:
    told = asked.contacts(planned(rules, "gpu-out-of-memory"), [])
    assert (told["hosts"], told["store"], told["probe"]) == ([], None, None)
    one = planned(rules, "rendezvous-failed", means=replace(TWO, places=TWO.places[:1]))
    assert asked.contacts(one, [""])["probe"] is None


def test_what_an_outcome_decides(rules: RuleSet) -> None:
    told = asked.decides(rules.causes["port-in-use"].experiment)
    assert (told["refuted_if"], told["passing"]) == (
        "never; a control that passes only says that the fault is not there now",
        "not-reproduced",
    )
    assert told["confirmed_if_zh"]
    assert asked.decides(rules.causes["job-preempted"].experiment)["confirmed_if"] is None
