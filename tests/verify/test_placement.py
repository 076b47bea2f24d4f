"""Which hosts and GPUs the ranks of an experiment get, and that the accused GPU is always among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.probes.gpu import Gpu, GpuProcess, Inventory
from nccl_triage.verify import gpus, plan
from nccl_triage.verify.means import HostMeans, Means
from nccl_triage.verify.placement import Request, place_of, slots_of
from nccl_triage.verify.plan import Planned, PlanOptions
from nccl_triage.verify.question import AccusedGpu, Question, SuspectedCause


def host(letter: str, count: int = 8, busy: Sequence[int] = (), **more: Any) -> HostMeans:
    """Return a host of ``count`` GPUs of which some are in use."""
    found = tuple(
        Gpu(
            index,
            uuid=f"GPU-{letter}{index}",
            bus=f"0000:{index + 16:02x}:00",
            memory_free=80 << 30,
            processes=(GpuProcess(7),) if index in busy else (),
        )
        for index in range(count)
    )
    refused = tuple(gpus.refusals(Inventory(found), {}))
    usable = tuple(gpu for gpu in found if gpu.index not in busy)
    return HostMeans(usable, count, refused, torch="2.9.1", **more)


A, B = HostPlace("gpu-a.cluster"), HostPlace("gpu-b.cluster")
TWO = Means((A, B), (host("a"), host("b")))


def planned(
    cause: str,
    rules: RuleSet,
    means: Means = TWO,
    question: Question | None = None,
    wish: PlanOptions | None = None,
    **blamed: Any,
) -> Planned:
    suspect = SuspectedCause(cause, "established", 0.9, **blamed)
    return plan.plan_one(question or Question(()), suspect, rules.causes[cause], means, wish or PlanOptions())


def used(found: Planned) -> dict[int, list[int]]:
    """Return the GPUs of each host, by index."""
    assert found.control is not None, found.why_not
    places: dict[int, list[int]] = {}
    for slot in found.control.slots:
        assert slot.gpu is not None
        places.setdefault(slot.place, []).append(slot.gpu.index)
    return places


ALL = list(range(8))


def test_all_gpus_of_every_host_by_default(rules: RuleSet) -> None:
    assert used(planned("network-link-fault", rules)) == {0: ALL, 1: ALL}


def test_as_many_as_the_job_had_where_the_cause_needs_no_more(rules: RuleSet) -> None:
    job = Question((), world=4, hosts=("gpu-a", "gpu-b"), ranks_of={"gpu-a": (0, 1, 2), "gpu-b": (3,)})
    assert used(planned("network-link-fault", rules, question=job)) == {0: [0, 1, 2], 1: [0, 1]}
    # What happens between the GPUs of a host needs them all.
    assert used(planned("gpu-p2p-broken", rules, question=job)) == {0: ALL}


@pytest.mark.parametrize("blamed", [AccusedGpu("gpu-b", 6), AccusedGpu("gpu-b.cluster", bus="0000:16:00")])
def test_the_accused_gpu_is_among_fewer_ranks(rules: RuleSet, blamed: AccusedGpu) -> None:
    job = Question((), world=4, hosts=("gpu-a", "gpu-b"))
    found = planned("network-link-fault", rules, question=job, gpus=(blamed,), hosts=("gpu-b",))
    assert used(found) == {0: [0, 1], 1: [0, 6]}
    assert [slot.gpu.device for slot in found.control.slots if slot.gpu] == [0, 1, 0, 6]  # type: ignore[union-attr]
    assert not any("accused" in text["en"] for text in found.differs)


def test_the_accused_host_is_taken_for_what_happens_inside_one(rules: RuleSet) -> None:
    assert used(planned("gpu-p2p-broken", rules, hosts=("gpu-b",))) == {1: ALL}
    assert used(planned("gpu-hardware-fault", rules, gpus=(AccusedGpu("gpu-b", 3),))) == {1: ALL}
    assert used(planned("gpu-hardware-fault", rules)) == {0: ALL, 1: ALL}


def test_a_gpu_of_no_named_host_is_accused_on_each(rules: RuleSet) -> None:
    job = Question((), world=2)
    assert used(planned("network-link-fault", rules, question=job, gpus=(AccusedGpu(None, 5),))) == {0: [5], 1: [5]}


def test_an_accused_gpu_in_use_weakens_a_pass_and_is_named(rules: RuleSet) -> None:
    means = Means((A, B), (host("a"), host("b", busy=(6,))))
    found = planned("network-link-fault", rules, means, gpus=(AccusedGpu("gpu-b", 6),))
    assert used(found)[1] == [0, 1, 2, 3, 4, 5, 7]
    assert [slot.gpu.device for slot in found.control.slots if slot.place == 1 and slot.gpu] == list(range(7))  # type: ignore[union-attr]
    (text,) = [text for text in found.differs if "accused" in text["en"]]
    assert "gpu-b.cluster: the accused GPU 6 of gpu-b is left out: GPU 6 is used by 1 other process" in text["en"]
    assert "GPU 6" in text["zh"] and not found.complete


def test_a_fault_of_a_gpu_in_use_is_not_tested_on_the_others(rules: RuleSet) -> None:
    means = Means((A, B), (host("a"), host("b", busy=(6,))))
    found = planned("gpu-hardware-fault", rules, means, gpus=(AccusedGpu("gpu-b", 6),))
    assert found.control is None and found.why_not is not None
    assert "GPU 6 of gpu-b is left out" in found.why_not["en"] and "GPU 6" in found.why_not["zh"]


def test_a_gpu_that_is_not_there_is_said(rules: RuleSet) -> None:
    means = Means((A,), (host("a", 4),))
    found = planned("gpu-hardware-fault", rules, means, gpus=(AccusedGpu("gpu-a", 6),))
    assert found.why_not is not None and "GPU 6 of gpu-a is not visible here" in found.why_not["en"]


def test_hosts_that_nobody_has_asked_are_not_said_to_lack_a_gpu(rules: RuleSet) -> None:
    found = planned("gpu-hardware-fault", rules, Means.alike((A,), 2), gpus=(AccusedGpu("gpu-a", 6),))
    assert found.control is not None


@pytest.mark.parametrize("op", [None, "BARRIER", "SEND", "REDUCE", "GATHER", "INIT"])
def test_a_gpu_s_fault_is_looked_for_with_data_on_every_gpu(rules: RuleSet, op: str | None) -> None:
    found = planned("gpu-hardware-fault", rules, question=Question((), op=op, numel=1))
    assert found.control is not None
    assert (found.control.message.op, found.control.message.numel) == ("ALLREDUCE", plan.DEFAULT_NUMEL)


def test_a_collective_of_the_log_that_is_checked_everywhere_is_kept(rules: RuleSet) -> None:
    found = planned("gpu-hardware-fault", rules, question=Question((), op="_ALLGATHER_BASE", numel=1 << 22))
    assert found.control is not None and found.control.message.op == "_ALLGATHER_BASE"


def test_the_total_is_spread_and_shares_gpus_where_there_are_too_few(rules: RuleSet) -> None:
    means = Means((A, B), (host("a", 2), host("b", 2)))
    found = planned("network-link-fault", rules, means, wish=PlanOptions(world=6))
    assert used(found) == {0: [0, 1, 0], 1: [0, 1, 0]}
    assert found.control is not None and found.control.shares_gpus
    assert len({found.control.env_of(rank)["NCCL_HOSTID"] for rank in range(6)}) == 6
    assert any("share a GPU" in text["en"] for text in found.differs)
    alone = planned("network-link-fault", rules, means)
    assert alone.control is not None and not alone.control.shares_gpus
    assert not any("share a GPU" in text["en"] for text in alone.differs)


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (3, 3), (8, 8), (16, 16)])
def test_ranks_per_host_is_a_count_whatever_the_log_says(rules: RuleSet, count: int, expected: int) -> None:
    places = (replace(A, slots=count), replace(B, slots=count))
    for question in (Question(()), Question((), world=2), Question((), world=512)):
        found = planned("network-link-fault", rules, Means(places, TWO.hosts), question)
        assert found.control is not None
        assert Counter(slot.place for slot in found.control.slots) == {0: expected, 1: expected}


def test_hosts_with_unlike_gpus(rules: RuleSet) -> None:
    found = planned("network-link-fault", rules, Means((A, B), (host("a", 8), host("b", 4))))
    assert used(found) == {0: ALL, 1: [0, 1, 2, 3]}
    assert found.control is not None and not found.control.shares_gpus


def test_processors_run_the_ranks_of_the_log(rules: RuleSet) -> None:
    means = Means((A, B), (HostMeans(torch="2.9.1"), HostMeans(torch="2.9.1")))
    request = Request(Question((), world=6), SuspectedCause("x", "possible", 0.1), rules.causes["straggler"].experiment)
    assert Counter(slot.place for slot in slots_of(request, means, "gloo")) == {0: 3, 1: 3}


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("gpu-a", 0),
        ("GPU-B.cluster", 1),
        ("10.0.0.2", 1),
        ("node-7", 0),  # the log knows its address
        ("172.17.0.1", None),  # both have it: a bridge of containers
        ("gpu-c", None),
        ("10.0.0", None),
    ],
)
def test_a_host_of_the_log_is_known_by_name_or_by_an_address_of_its_own(name: str, place: int | None) -> None:
    own = (frozenset({"10.0.0.1", "172.17.0.1", "login"}), frozenset({"10.0.0.2", "172.17.0.1", "login"}))
    hosts = tuple(replace(HostMeans(), known_as=names) for names in own)
    question = Question((), addresses={"node-7": ("10.0.0.1",)})
    assert place_of(name, question, Means((A, B), hosts)) == place
