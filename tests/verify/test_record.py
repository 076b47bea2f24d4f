"""What ``--dry-run`` shows of a plan."""

from __future__ import annotations

import json
from dataclasses import replace

from nccl_triage.document.verify_commands import JobPlace, ready_commands
from nccl_triage.engine.schema import RuleSet
from nccl_triage.hosts.links import HostPlace
from nccl_triage.verify import plan
from nccl_triage.verify.means import Means
from nccl_triage.verify.plan import REPEATS, Plan, PlanOptions
from nccl_triage.verify.question import Question, SuspectedCause
from nccl_triage.verify.record import plan_record

TWO = Means.alike((HostPlace("a"), HostPlace("b")), torch="2.13.0")
ASKED = Question(
    (SuspectedCause("network-unreachable-subnet", "supported", 0.6),),
    op="ALLREDUCE",
    numel=64,
    world=3,
    env={"NCCL_IB_DISABLE": "1"},
)


def test_a_plan_says_what_will_run_where(rules: RuleSet) -> None:
    told = json.loads(json.dumps(plan_record(plan.build(ASKED, rules.causes, TWO, PlanOptions(budget=60.0)))))
    assert (told["hosts"], told["probe"], told["budget_s"]) == (["a", "b"], True, 60.0)
    (entry,) = told["experiments"]
    control = entry["control"]
    assert (control["call"], control["numel"]) == ("torch.distributed.all_reduce", 64)
    assert (control["world_size"], control["ranks_per_host"]) == (3, [2, 1])
    assert (control["dtype"], control["more_dtypes"]) == ("float32", ["bfloat16"])
    assert control["env"] == {"NCCL_IB_DISABLE": "1"}
    assert entry["repeats"] == REPEATS
    assert "with all ranks on one host" in entry["treatments"]
    assert entry["why_not"] is None


def test_what_cannot_run_says_why_in_both_languages(rules: RuleSet) -> None:
    made = plan.build(ASKED, rules.causes, replace(TWO, places=TWO.places[:1]), PlanOptions())
    (entry,) = plan_record(made)["experiments"]
    assert (entry["control"], entry["treatments"], entry["memory_per_rank"]) == (None, [], 0)
    assert "--host" in entry["why_not"] and "主机" in entry["why_not_zh"]


def test_a_plan_tells_what_is_decided_and_who_is_contacted(rules: RuleSet) -> None:
    made = plan.build(ASKED, rules.causes, TWO, PlanOptions())
    told = json.loads(json.dumps(plan_record(made, ways=["ssh", ""])))
    (entry,) = told["experiments"]
    assert (told["runs"], entry["asked"], entry["status"], entry["confidence"]) == (True, None, "supported", 0.6)
    assert entry["decides"]["refuted_if"] == "all probes and the control pass"
    assert [(host["name"], host["by"]) for host in told["contacts"]["hosts"]] == [("a", "ssh"), ("b", "")]


def test_where_nothing_runs_the_plan_of_the_job_tells_who_would_be_contacted(rules: RuleSet) -> None:
    here = plan.build(ASKED, rules.causes, replace(TWO, places=(HostPlace("laptop"),)), PlanOptions())
    job = plan.build(ASKED, rules.causes, TWO, PlanOptions())
    ready = ready_commands(JobPlace("a.log", ("a", "b"), launcher="ray"))
    told = plan_record(here, job, ready)
    assert (told["runs"], told["hosts"]) == (False, ["laptop"])
    assert [(host["name"], host["by"]) for host in told["contacts"]["hosts"]] == [("a", "ray"), ("b", "ray")]
    assert told["experiments"][0]["asked"]["hosts"] == ["a", "b"]
    assert told["commands"][0]["commands"] == ["nccl-triage verify a.log --launcher ray"]


def test_an_empty_plan() -> None:
    assert plan_record(Plan(Question(()), TWO, PlanOptions(), ()))["experiments"] == []
