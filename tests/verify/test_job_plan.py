"""The plan for the job's own hosts, on a machine that is none of them."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.verify.api import Settings
from nccl_triage.verify.job_plan import plan_for_job, record_of
from nccl_triage.verify.plan import PlanOptions
from nccl_triage.verify.question import Question, SuspectedCause

HOSTS = ("a", "b")


def question(cause: str, **known: Any) -> Question:
    return Question(
        (SuspectedCause(cause, "supported", 0.9),), **{"backend": "nccl", "hosts": HOSTS, "world": 16, **known}
    )


@pytest.mark.parametrize("cause", ["network-ib-link-fault", "network-firewall-port", "rank-divergence"])
def test_causes_that_need_gpus_or_hosts_have_their_collective_anywhere(rules: RuleSet, cause: str) -> None:
    (entry,) = plan_for_job(question(cause, op="BROADCAST"), rules, Settings(), HOSTS).experiments
    assert entry.control is not None
    assert (entry.control.message.op, entry.control.backend, entry.control.world) == ("BROADCAST", "nccl", 16)
    assert entry.control.places == (0, 1)


def test_a_job_of_gloo_is_asked_with_gloo_but_for_what_needs_gpus(rules: RuleSet) -> None:
    for cause, backend in (("network-firewall-port", "gloo"), ("gpu-p2p-broken", "nccl")):
        (entry,) = plan_for_job(question(cause, backend="gloo"), rules, Settings(), HOSTS).experiments
        assert entry.control is not None
        assert entry.control.backend == backend


def test_a_backend_that_was_chosen_stays(rules: RuleSet) -> None:
    settings = Settings(options=PlanOptions(backend="gloo"))
    (entry,) = plan_for_job(question("network-firewall-port"), rules, settings, HOSTS).experiments
    assert entry.control is not None
    assert entry.control.backend == "gloo"


def test_a_document_without_a_cause_has_an_empty_plan(rules: RuleSet) -> None:
    told = record_of({"verdict": "healthy", "diagnoses": []}, rules, Settings(options=PlanOptions(backend="gloo")))
    assert (told["experiments"], told["healthy"], told["runs"], told["would_write"]) == ([], True, False, None)


@pytest.mark.parametrize(
    "damaged", [{}, {"job": 3, "diagnoses": [3], "inputs": "x"}, {"diagnoses": [{"cause": "network-firewall-port"}]}]
)
@pytest.mark.parametrize("launcher", ["local", "ray", "slurm", "print"])
def test_a_damaged_document_has_a_plan(rules: RuleSet, damaged: dict[str, Any], launcher: str) -> None:
    told = record_of(damaged, rules, Settings(launcher=launcher))
    assert len(told["experiments"]) == ("cause" in str(damaged))
    assert all(command["commands"] for command in told["commands"])
