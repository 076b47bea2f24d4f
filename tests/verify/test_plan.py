"""Plans: what is planned for any question with any means, and what is not."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import UsageError
from nccl_triage.verify import plan
from nccl_triage.verify.collective_run import SEVERAL_HOSTS, CollectiveMessage, CollectiveRun, Deadlines, HostPlace
from nccl_triage.verify.means import Means
from nccl_triage.verify.placement import CPU_WORLD
from nccl_triage.verify.plan import CPU_BYTES, DEFAULT_NUMEL, GPU_BYTES, Plan, Planned, PlanOptions
from nccl_triage.verify.question import Question, SuspectedCause
from nccl_triage.verify.record import plan_record
from nccl_triage.verify.worker.ops import DTYPES, OPERATIONS, operation

HERE = Means.alike((HostPlace("here"),), torch="2.13.0")
TWO = Means.alike((HostPlace("a"), HostPlace("b")), torch="2.13.0")
NOTHING, USUAL = Question(()), PlanOptions()
GPUS = Means.alike((HostPlace("here"),), 8, 80 << 30, "H100", torch="2.13.0")

questions = st.builds(
    Question,
    suspects=st.just(()),
    op=st.none() | st.sampled_from(sorted(OPERATIONS)),
    numel=st.none() | st.integers(1, 1 << 40),
    dtype=st.none() | st.sampled_from([*DTYPES, "BFloat16", ""]),
    world=st.none() | st.integers(1, 4096),
    timeout=st.none() | st.floats(0.001, 1e6),
    hosts=st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True).map(tuple),
    env=st.dictionaries(st.sampled_from(["NCCL_A", "NCCL_SOCKET_IFNAME"]), st.text(max_size=4)),
    backend=st.sampled_from([None, "nccl", "gloo"]),
    port=st.none() | st.integers(1, 65535),
    master=st.none() | st.just("10.0.0.1"),
)
means = st.builds(
    Means.alike,
    places=st.integers(1, 4).map(lambda count: tuple(HostPlace("abcd"[i]) for i in range(count))),
    gpus=st.sampled_from([0, 1, 2, 8]),
    gpu_free=st.sampled_from([0, 1 << 20, 16 << 30, 141 << 30]),
    torch=st.sampled_from([None, "2.13.0"]),
)
options = st.builds(
    PlanOptions,
    backend=st.sampled_from(["auto", "nccl", "gloo"]),
    world=st.none() | st.integers(1, 64),
    timeout_factor=st.floats(0.05, 10),
    budget=st.floats(1, 1e4),
)


def planned(
    cause: str, rules: RuleSet, question: Question = NOTHING, about: Means = HERE, wish: PlanOptions = USUAL
) -> Planned:
    """Plan the experiment of one cause of the rules."""
    return plan.plan_one(question, SuspectedCause(cause, "established", 0.9), rules.causes[cause], about, wish)


def control(cause: str, rules: RuleSet, *given: Any) -> CollectiveRun:
    found = planned(cause, rules, *given)
    assert found.control is not None, found.why_not
    return found.control


@given(questions, means, options)
@settings(max_examples=60, deadline=None)
def test_whatever_is_asked(rules: RuleSet, question: Question, about: Means, wish: PlanOptions) -> None:
    for cause in rules.causes:
        found = planned(cause, rules, question, about, wish)
        assert (found.control is None) == (found.why_not is not None)
        if found.control is None:
            assert found.why_not is not None and found.why_not["en"] and found.why_not["zh"]
            assert (found.seconds, found.memory, found.complete) == (0.0, 0, False)
            continue
        check_slots(found, about, wish)
        check_message(found, question, about)
        check_completeness(found, question)
        run, experiment = found.control, found.experiment
        assert experiment.kind not in ("none", "memory")
        assert run.env == question.env and run.env is not question.env
        assert run.port == (question.port if experiment.kind == "store" else None)
        assert run.backend == "nccl" or experiment.backend == "any", "Gloo shows nothing of GPUs"
        assert run.device == ("cuda" if run.backend == "nccl" else "cpu")
        assert math.isfinite(found.seconds) and found.memory > 0


def check_slots(found: Planned, about: Means, wish: PlanOptions) -> None:
    """Ranks are numbered host by host, evenly, and no host takes more than it can."""
    run = found.control
    assert run is not None
    assert [slot.number for slot in run.slots] == list(range(run.world))
    assert [slot.place for slot in run.slots] == sorted(slot.place for slot in run.slots)
    scope = found.experiment.scope
    assert run.places == (tuple(range(1)) if scope == "host" else tuple(range(len(about.places))))
    assert run.world >= (1 if scope == "rank" else 2)
    each = Counter(slot.place for slot in run.slots)
    assert max(each.values()) - min(each.values()) <= 1
    if wish.world is not None:
        assert run.world >= wish.world
    elif run.backend == "nccl":
        assert max(each.values()) <= max(2, about.gpus)
    else:
        assert max(each.values()) <= CPU_WORLD
    if run.backend == "nccl":
        for slot in run.slots:
            assert slot.gpu is not None and 0 <= slot.gpu.device < about.gpus
    else:
        assert {slot.gpu for slot in run.slots} == {None}


def check_message(found: Planned, question: Question, about: Means) -> None:
    """The log's message, or less where memory ends; never more."""
    run = found.control
    assert run is not None
    message = run.message
    for part in (message, *run.more):
        assert part.op in OPERATIONS and part.dtype in DTYPES and part.numel >= 1
        size = operation(part.op).bytes(part.numel, run.world, DTYPES[part.dtype])
        least = DTYPES[part.dtype] * run.world
        assert size <= max(least, CPU_BYTES if run.backend == "gloo" else GPU_BYTES)
        if run.backend == "nccl" and about.gpu_free:
            assert size <= max(least, about.gpu_free / 4)
    if question.numel is not None and message.op not in ("INIT",):
        assert message.numel <= max(question.numel, DEFAULT_NUMEL if found.experiment.kind == "single" else 0)
    if found.experiment.kind not in ("store", "versions", "single") and question.op:
        assert message.op == question.op


def check_completeness(found: Planned, question: Question) -> None:
    """Only what is as large as the failure is called complete; what is not says why."""
    run = found.control
    assert run is not None
    if found.complete:
        if found.experiment.scope != "host":
            assert question.world is None or run.world >= question.world
            assert len(run.places) >= len(question.hosts)
        assert run.message.op == "INIT" or question.numel is None or run.message.numel >= question.numel
        assert question.hosts or question.world is not None, "nothing is known about the failure"
    else:
        assert found.differs


@given(
    questions,
    means,
    options,
    st.lists(st.sampled_from(["rendezvous-failed", "straggler", "gpu-p2p-broken", "no-such-cause", "storage-fault"])),
)
@settings(max_examples=60, deadline=None)
def test_a_whole_plan(rules: RuleSet, question: Question, about: Means, wish: PlanOptions, causes: list[str]) -> None:
    asked = replace(question, suspects=tuple(SuspectedCause(cause, "possible", 0.1) for cause in causes))
    made = plan.build(asked, rules.causes, about, wish)
    known = [cause for cause in causes if cause in rules.causes]
    assert [entry.suspect.cause for entry in made.experiments] == known[: wish.suspects], "best first"
    assert 0 <= made.seconds <= wish.budget
    told = json.loads(json.dumps(plan_record(made)))
    assert len(told["experiments"]) == len(made.experiments)
    for entry, shown in zip(made.experiments, told["experiments"], strict=True):
        assert (shown["control"] is None) == (entry.control is None)
        if entry.control is not None:
            assert sum(shown["control"]["ranks_per_host"]) == entry.control.world
            assert len(shown["treatments"]) == len(entry.experiment.vary)
    assert made.probes == (len(about.places) > 1 and any(entry.control for entry in made.experiments))


def test_every_cause_that_cannot_be_tested_says_why(rules: RuleSet) -> None:
    for cause in rules.causes.values():
        if cause.experiment.kind in ("none", "memory"):
            found = planned(cause.id, rules, Question(()), GPUS)
            assert found.control is None and found.why_not is not None and found.why_not["zh"]


def test_what_takes_hosts_says_which(rules: RuleSet) -> None:
    found = planned("network-link-fault", rules, Question((), hosts=("gpu-a", "gpu-b")), GPUS)
    assert found.why_not is not None and "gpu-a, gpu-b" in found.why_not["en"] and "--host" in found.why_not["en"]


def test_without_torch_nothing_is_planned(rules: RuleSet) -> None:
    here, two = (Means.alike(about.places, torch=None) for about in (HERE, TWO))
    found = planned("rendezvous-failed", rules, Question(()), here)
    assert found.why_not is not None and "--python" in found.why_not["en"]
    found = planned("rendezvous-failed", rules, Question(()), replace(TWO, hosts=(TWO.hosts[0], two.hosts[1])))
    assert found.why_not is not None and found.why_not["en"].startswith("b: ") and "--python" in found.why_not["en"]


def test_gpus_in_use_are_named_as_the_reason(rules: RuleSet) -> None:
    busy = Means.alike(HERE.places, no_gpu={"en": "GPU 0 is in use", "zh": "GPU 0 正在使用"})
    found = planned("gpu-p2p-broken", rules, Question(()), busy)
    assert found.why_not is not None
    assert "GPU 0 is in use" in found.why_not["en"] and "GPU 0 正在使用" in found.why_not["zh"]


def test_the_whole_failure_is_repeated_where_it_fits(rules: RuleSet) -> None:
    question = Question(
        (), op="_ALLGATHER_BASE", numel=1000, dtype="bfloat16", world=4, hosts=("here",), backend="gloo"
    )
    found = planned("rank-divergence", rules, question)
    assert found.control is not None
    assert found.control.message == CollectiveMessage("_ALLGATHER_BASE", 1000, "bfloat16")
    assert (found.control.world, found.complete, found.differs) == (4, True, ())


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"world": 64}, "8 ranks instead of 64"),
        ({"hosts": ("here", "there")}, "1 hosts instead of 2"),
        ({"numel": 1 << 40}, "elements instead of 1,099,511,627,776"),
        ({"hosts": ("elsewhere",)}, "which the log does not name"),
        ({"world": None, "hosts": ()}, "does not show how many"),
    ],
)
def test_less_than_the_failure_is_said(rules: RuleSet, changes: dict[str, Any], word: str) -> None:
    question = replace(Question((), op="ALLREDUCE", numel=1000, dtype="float32", world=4, hosts=("here",)), **changes)
    found = planned("rank-divergence", rules, question)
    assert not found.complete
    assert any(word in entry["en"] for entry in found.differs), found.differs
    assert len(found.differs) == 1


def test_gloo_in_the_place_of_nccl_is_said(rules: RuleSet) -> None:
    found = planned(
        "rank-divergence", rules, Question((), world=2, numel=8, dtype="float32", hosts=("here",), backend="nccl")
    )
    assert ["gloo instead of nccl" in entry["en"] for entry in found.differs] == [True]


def test_ranks_that_share_a_gpu_get_hosts_of_their_own(rules: RuleSet) -> None:
    """NCCL refuses two ranks on one GPU of one host (Duplicate GPU detected); it compares NCCL_HOSTID, too."""
    one = Means.alike(HERE.places, 1)
    run = control("rank-divergence", rules, Question((), world=2), one)
    assert {own["NCCL_HOSTID"] for own in run.per_rank_env.values()} == {"rank0", "rank1"}
    assert control("rank-divergence", rules, Question((), world=8), GPUS).per_rank_env == {}


def test_ranks_that_share_a_gpu_on_one_host_of_two(rules: RuleSet) -> None:
    run = control("rank-divergence", rules, NOTHING, Means.alike(TWO.places, 1), PlanOptions(world=3))
    assert Counter(slot.place for slot in run.slots) == {0: 2, 1: 1}
    assert run.shares_gpus
    assert len({own.get("NCCL_HOSTID") for own in run.per_rank_env.values()}) == 3


@pytest.mark.parametrize(
    "slots",
    [1, 2, 3, 12],
)
def test_a_host_takes_as_many_ranks_as_it_is_said_to(rules: RuleSet, slots: int) -> None:
    about = Means.alike((HostPlace("a", slots=slots), HostPlace("b", slots=slots)), torch="2.13")
    for question in (Question((), world=16), Question((), world=2), NOTHING):
        run = control("rendezvous-failed", rules, question, about)
        assert Counter(slot.place for slot in run.slots) == {0: slots, 1: slots}


def test_the_store_of_the_log_is_tried_only_between_hosts(rules: RuleSet) -> None:
    question = Question((), world=4, port=29500, master="10.0.0.1")
    assert control("rendezvous-failed", rules, question).store_address is None, (
        "on one host nothing leaves the loopback"
    )
    run = control("rendezvous-failed", rules, question, TWO)
    assert (run.store_address, run.port, run.message.op) == ("10.0.0.1", 29500, "INIT")


def test_several_hosts_get_more_time_and_patience_multiplies_it(rules: RuleSet) -> None:
    assert planned("rendezvous-failed", rules).deadlines == Deadlines()
    assert planned("rendezvous-failed", rules, Question(()), TWO).deadlines == SEVERAL_HOSTS
    slow = planned("rendezvous-failed", rules, Question(()), HERE, PlanOptions(timeout_factor=3.0)).deadlines
    assert slow.first == 3 * Deadlines().first and slow.start == Deadlines().start


@pytest.mark.parametrize(("option", "field"), [("budget", "budget"), ("patience", "timeout_factor")])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_a_time_that_is_none_is_refused(option: str, field: str, value: float) -> None:
    """The range of the command line's option lets "nan" pass."""
    with pytest.raises(UsageError, match=f"--{option} {value}: expected a number above 0"):
        PlanOptions(**{field: value})
    assert PlanOptions(**{field: math.inf})


def test_an_empty_plan_takes_no_time() -> None:
    made = Plan(Question(()), HERE, PlanOptions(), ())
    assert (made.seconds, made.probes) == (0, False)
