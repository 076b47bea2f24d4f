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
from nccl_triage.hosts.links import HostPlace
from nccl_triage.verify import plan
from nccl_triage.verify.collective_run import SEVERAL_HOSTS, CollectiveMessage, CollectiveRun, Deadlines
from nccl_triage.verify.means import Means
from nccl_triage.verify.placement import CPU_WORLD
from nccl_triage.verify.plan import DEFAULT_NUMEL, Plan, Planned, PlanOptions
from nccl_triage.verify.question import Question, SuspectedCause
from nccl_triage.verify.record import plan_record
from nccl_triage.verify.worker.ops import DTYPES, OPERATIONS, operation

HERE = Means.alike((HostPlace("here"),), torch="2.13.0")
TWO = Means.alike((HostPlace("a"), HostPlace("b")), torch="2.13.0")
NOTHING, USUAL = Question(()), PlanOptions()
GPUS = Means.alike((HostPlace("here"),), 8, 80 << 30, "H100", torch="2.13.0")
SMALL = Means.alike((HostPlace("here"),), 8, 4 << 30, "H100", torch="2.13.0")

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
        assert run.joins == ("store" if experiment.kind == "store" else "group")
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
        if run.backend == "nccl" and about.gpu_free and part.numel > 1:
            held = operation(part.op).memory(part.numel, run.world, DTYPES[part.dtype])
            assert held <= about.gpu_free * 0.8
    if question.numel is not None and message.op not in ("INIT",):
        assert message.numel <= max(question.numel, DEFAULT_NUMEL if found.experiment.kind == "single" else 0)
    if found.experiment.kind not in ("store", "versions", "single") and question.op:
        assert message.op == question.op


def test_a_gather_of_many_gigabytes_is_repeated_where_memory_allows(rules: RuleSet) -> None:
    """ZeRO-3 gathers whole layers: 3.7 GB of bfloat16 on 8 ranks."""
    question = Question((), op="_ALLGATHER_BASE", numel=231_211_008, dtype="bfloat16", world=8, hosts=("here",))
    assert control("rank-divergence", rules, question, GPUS).message.numel == 231_211_008
    small = control("rank-divergence", rules, question, SMALL)
    assert 1 < small.message.numel < 231_211_008
    found = planned("rank-divergence", rules, question, SMALL)
    assert any("elements instead of 231,211,008" in entry["en"] for entry in found.differs) and not found.complete


@pytest.mark.parametrize(
    ("op", "dtype", "backend", "taken", "numel", "weaker"),
    [
        ("_ALLGATHER_BASE", "Float8_e4m3fn", "nccl", "float8_e4m3fn", 1000, None),
        ("_ALLGATHER_BASE", "float8_e5m2", "gloo", "uint8", 1000, False),
        ("ALLREDUCE", "Float8_e4m3fn", "nccl", "bfloat16", 500, True),
        ("ALLREDUCE", "int16", "nccl", "bfloat16", 1000, True),
        ("BROADCAST", "complex64", "gloo", "float64", 1000, False),
        ("BROADCAST", "Quantum", "gloo", "float32", 1000, False),
        ("ALLREDUCE", "bfloat16", "gloo", "bfloat16", 1000, None),
    ],
)
def test_a_type_is_what_it_is_or_stands_in_what_differs(
    rules: RuleSet, op: str, dtype: str, backend: str, taken: str, numel: int, weaker: bool | None
) -> None:
    question = Question((), op=op, numel=1000, dtype=dtype, world=4, hosts=("here",), backend=backend)
    found = planned("rank-divergence", rules, question, GPUS if backend == "nccl" else HERE)
    assert found.control is not None
    assert (found.control.message.dtype, found.control.message.numel) == (taken, numel)
    assert found.control.more == ()
    said = [entry["en"] for entry in found.differs if "instead of" in entry["en"]]
    assert said == ([] if weaker is None else [f"{taken} instead of {dtype}"])
    assert found.complete == (not weaker)


def test_shares_that_were_not_alike_are_said(rules: RuleSet) -> None:
    known = Question((), op="ALLTOALL_BASE", numel=1000, dtype="float32", world=4, hosts=("here",))
    assert planned("rank-divergence", rules, known).complete
    found = planned("rank-divergence", rules, replace(known, uneven=True))
    assert not found.complete and ["even shares" in entry["en"] for entry in found.differs] == [True]


@pytest.mark.parametrize(("root", "world", "taken"), [(3, 4, 3), (5, 4, 0), (0, 4, 0)])
def test_the_root_of_the_log_is_the_root(rules: RuleSet, root: int, world: int, taken: int) -> None:
    question = Question((), op="BROADCAST", numel=8, dtype="float32", world=world, hosts=("here",), root=root)
    found = planned("rank-divergence", rules, question)
    assert found.control is not None and found.control.message.root == taken
    assert found.complete == (taken == root)


@pytest.mark.parametrize(
    ("timeout", "first", "library"),
    [
        (None, 30.0, 15.0),
        (5.0, 30.0, 5.0),
        (60.0, 75.0, 60.0),
        (600.0, 30.0, 15.0),  # NCCL's default, and what follows: no experiment can wait as long
        (43_200.0, 30.0, 15.0),
    ],
)
def test_a_timeout_of_hours_is_scaled_down(timeout: float | None, first: float, library: float) -> None:
    limits = Deadlines().waiting(timeout)
    assert (limits.first, limits.library(timeout)) == (first, library)
    assert limits.longest() < 300


def test_a_large_message_gets_more_time(rules: RuleSet) -> None:
    question = Question((), op="ALLREDUCE", numel=1 << 28, dtype="float32", world=2, hosts=("here",), backend="gloo")
    found = planned("rank-divergence", rules, question)
    assert found.control is not None
    limits = found.limits(found.control)
    extra = (1 << 30) / 0.1e9
    assert limits.first == pytest.approx(Deadlines().first + 2 * extra)
    assert limits.timed == pytest.approx(Deadlines().timed + extra)
    assert limits.library(None) == limits.first / 2
    assert found.seconds == pytest.approx(limits.longest() * plan.REPEATS * (1 + len(found.experiment.vary)))
    huge = planned("rank-divergence", rules, replace(question, numel=1 << 50))
    assert huge.control is not None and huge.limits(huge.control).first == Deadlines().first + 120


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
