"""An experiment that can decide nothing where it would run is not started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.hosts.links import HostPlace
from nccl_triage.verify import plan
from nccl_triage.verify.decidable import can_decide, only_deciding
from nccl_triage.verify.host_names import host_of, key
from nccl_triage.verify.means import Means
from nccl_triage.verify.plan import Plan, PlanOptions
from nccl_triage.verify.question import Question, SuspectedCause

ASKED = Question((), op="ALLREDUCE", numel=64, world=2, hosts=("gpu-a", "gpu-b"), backend="nccl",
                 addresses={"gpu-a": ("10.0.0.1", "172.17.0.1"), "gpu-b": ("10.0.0.2", "172.17.0.1")})  # fmt: skip
Make = Callable[..., Plan]


@pytest.fixture
def made(rules: RuleSet) -> Make:
    def build(cause: str, *names: str, asked: Question = ASKED, gpus: int = 0) -> Plan:
        means = Means.alike(tuple(HostPlace(name) for name in names), gpus, torch="2.13.0")
        asked = replace(asked, suspects=(SuspectedCause(cause, "supported", 0.9),))
        return plan.build(asked, rules.causes, means, PlanOptions())

    return build


def reason(made: Plan, *addresses: str) -> str | None:
    hosts = tuple(replace(host, known_as=frozenset(addresses)) for host in made.means.hosts)
    found = can_decide(made.experiments[0], made.question, replace(made.means, hosts=hosts))
    return None if found is None else found["en"]


def test_another_host_decides_nothing(made: Make) -> None:
    assert (
        reason(made("rendezvous-failed", "laptop")) == "a run on laptop cannot decide it: the job ran on gpu-a, gpu-b"
    )
    assert reason(made("rendezvous-failed", "gpu-a", "laptop")) is not None
    assert reason(made("rendezvous-failed", "gpu-a")) is None
    assert reason(made("rendezvous-failed", "GPU-A.cluster.example", "gpu-b")) is None


def test_a_host_is_known_by_its_address(made: Make) -> None:
    laptop = made("rendezvous-failed", "laptop")
    assert reason(laptop, "10.0.0.1") is None
    assert reason(laptop, "172.17.0.1") is not None


def test_where_the_log_names_no_hosts_the_user_has_to_say_that_these_are_the_jobs(made: Make) -> None:
    told = reason(made("rendezvous-failed", "laptop", asked=replace(ASKED, hosts=(), addresses={})))
    assert told is not None and "--job-hosts" in told


@pytest.mark.parametrize("cause", ["straggler", "process-crashed"])
def test_gloo_in_place_of_nccl_shows_nothing_of_a_cause_whose_pass_says_nothing(made: Make, cause: str) -> None:
    assert "Gloo" in (reason(made(cause, "gpu-a")) or "")
    assert reason(made(cause, "gpu-a", gpus=2)) is None
    assert reason(made(cause, "gpu-a", asked=replace(ASKED, backend="gloo"))) is None


def test_a_pass_on_less_supports_nothing(made: Make) -> None:
    one = replace(ASKED, hosts=("gpu-a",))
    assert reason(made("rank-divergence", "gpu-a", asked=one)) is None
    assert "Gloo" in (reason(made("rank-divergence", "gpu-a", asked=replace(one, world=512))) or "")
    # The time of the collective beside the timeout says something at any size.
    timed = replace(one, world=512, timeout=600.0)
    assert reason(made("timeout-too-short", "gpu-a", asked=timed)) is None


def test_paths_between_hosts_need_two(made: Make) -> None:
    assert "between hosts" in (reason(made("ray-node-lost", "gpu-a")) or "")
    assert reason(made("ray-node-lost", "gpu-a", "gpu-b")) is None


def test_what_cannot_run_says_so_itself(made: Make) -> None:
    found = made("network-firewall-port", "gpu-a")
    assert can_decide(found.experiments[0], found.question, found.means) == found.experiments[0].why_not


def test_only_what_decides_is_left_in_a_plan(made: Make) -> None:
    laptop = made("rendezvous-failed", "laptop")
    (left,) = only_deciding(laptop).experiments
    assert (left.control, left.differs, left.complete) == (None, (), False)
    assert left.why_not is not None
    assert "laptop" in left.why_not["zh"]
    own = made("rendezvous-failed", "gpu-a")
    assert only_deciding(own) == own


def test_names_of_hosts() -> None:
    assert [key(name) for name in ("GPU-a.example", "gpu-a#2", "10.0.0.1", "fd00::1")] == [
        "gpu-a", "gpu-a", "10.0.0.1", "fd00::1",
    ]  # fmt: skip
    assert host_of(ASKED, "10.0.0.2") == "gpu-b"
    assert host_of(ASKED, "10.0.0.3") is None
    assert host_of(replace(ASKED, hosts=("10.0.0.4",), addresses={}), "10.0.0.5") is None
    assert host_of(replace(ASKED, hosts=("10.0.0.4",), addresses={}), "node", "10.0.0.4") == "10.0.0.4"
    assert host_of(replace(ASKED, hosts=("localhost",), addresses={}), "localhost") is None
