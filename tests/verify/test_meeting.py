"""An address and a port of a log are used on a host that they belong to, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.hosts.links import HostPlace
from nccl_triage.verify import meeting, plan
from nccl_triage.verify.means import Means
from nccl_triage.verify.plan import Planned, PlanOptions
from nccl_triage.verify.question import Question, SuspectedCause, ask
from nccl_triage.verify.reachability import ReachabilityMatrix
from nccl_triage.verify.trials import SessionHosts, fill_in
from tests.verify.written.file_runs import facts

A, B = HostPlace("gpu-a", ("ssh", "gpu-a")), HostPlace("gpu-b", ("ssh", "gpu-b"))
FACTS = [facts("gpu-a.cluster.local", "10.0.0.1"), facts("gpu-b.cluster.local", "10.0.0.2")]


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("gpu-a", True), ("GPU-A", True), ("gpu-a.cluster.local", True), ("10.0.0.1", True), ("127.0.0.1", True),
        ("localhost", True), ("gpu-a.evil.example", False), ("gpu-b", False), ("10.0.0.2", False), ("192.0.2.1", False),
        ("gpu", False), ("", False), ("None", False),
    ],
)  # fmt: skip
def test_a_host_has_what_it_says_or_what_the_user_calls_it(name: str, has: bool) -> None:
    assert meeting.has_name(A, FACTS[0], name) is has


def test_an_address_that_the_launcher_knows_is_the_hosts() -> None:
    assert meeting.has_name(replace(A, address="172.16.0.9"), FACTS[0], "172.16.0.9")


@pytest.mark.parametrize(
    ("hosts", "addresses", "of_job"),
    [
        ((), {}, True), (("gpu-a",), {}, True), (("gpu-a.other.domain",), {}, True), (("10.0.0.1",), {}, True),
        (("node-7",), {"node-7": ("10.0.0.1",)}, True), (("node-7",), {"node-7": ("10.0.0.9",)}, False),
        (("node-7",), {}, False), (("node-7",), {"node-7": ("127.0.0.1",)}, False),
    ],
)  # fmt: skip
def test_a_host_of_the_job_is_known_by_name_or_address(hosts: Any, addresses: Any, of_job: bool) -> None:
    assert meeting.is_of_job(Question((), hosts=hosts, addresses=addresses), A, FACTS[0]) is of_job


def planned(rules: RuleSet, master: str | None, port: int | None = None, hosts: tuple[str, ...] = ()) -> Planned:
    question = question_of(master, port, hosts)
    made = plan.build(question, rules.causes, Means.alike((A, B), torch="2.13"), PlanOptions(backend="gloo"))
    return made.experiments[0]


def question_of(master: str | None, port: int | None, hosts: tuple[str, ...]) -> Question:
    suspects = (SuspectedCause("rendezvous-failed", "possible", 0.5),)
    return Question(suspects, world=2, hosts=hosts, master=master, port=port, backend="gloo")


@pytest.mark.parametrize("master", ["gpu-a", "10.0.0.1"])
def test_a_store_at_the_address_of_the_log_stays_there(rules: RuleSet, master: str) -> None:
    before = planned(rules, master, 29500, ("gpu-a", "gpu-b"))
    after = meeting.at_hand(before, question_of(master, 29500, ("gpu-a", "gpu-b")), (A, B), FACTS)
    assert after is before
    assert after.control is not None
    assert (after.control.store_address, after.control.port) == (master, 29500)
    assert after.complete


@pytest.mark.parametrize("master", ["192.0.2.1", "head.evil.example", "gpu-b", "10.0.0.2", "-oProxyCommand"])
def test_an_address_that_is_not_rank_0s_is_named_and_not_used(rules: RuleSet, master: str) -> None:
    before = planned(rules, master)
    assert before.control is not None and before.control.store_address == master
    after = meeting.at_hand(before, question_of(master, None, ()), (A, B), FACTS)
    assert not after.complete
    assert [text["en"] for text in after.differs if master in text["en"]]
    assert [text["zh"] for text in after.differs if master in text["zh"]]
    assert after.control is not None
    run = fill_in(after.control, SessionHosts((A, B), FACTS, ReachabilityMatrix()), {})
    assert run.store_address == "10.0.0.1"


def test_a_port_of_another_cluster_is_named_and_not_used(rules: RuleSet) -> None:
    hosts = ("node-7", "node-8")
    after = meeting.at_hand(planned(rules, None, 29500, hosts), question_of(None, 29500, hosts), (A, B), FACTS)
    assert after.control is not None and after.control.port is None
    assert any("free port instead of 29500" in text["en"] for text in after.differs)
    assert not after.complete


def test_where_the_log_names_no_host_its_port_is_used(rules: RuleSet) -> None:
    before = planned(rules, None, 29500)
    assert meeting.at_hand(before, question_of(None, 29500, ()), (A, B), FACTS) is before


def test_without_facts_nothing_is_decided(rules: RuleSet) -> None:
    before = planned(rules, "192.0.2.1")
    assert meeting.at_hand(before, question_of("192.0.2.1", None, ()), (A, B), []) is before


@pytest.mark.parametrize("text", ["MASTER_PORT=80", "MASTER_PORT=1023", "port=99999"])
def test_ports_that_are_not_for_users_are_none(text: str) -> None:
    assert ask({"timeline": [{"text": text}]}).port is None
