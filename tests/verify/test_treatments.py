"""Treatments: the control with exactly one thing changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet, Treatment
from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.probes.gpu import Gpu
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, Deadlines, Slot, SlotGpu
from nccl_triage.verify.means import HostMeans, Means
from nccl_triage.verify.reachability import ReachabilityMatrix
from nccl_triage.verify.treatments import KnownHosts, make, without, words
from tests.verify.host_facts import facts, interface, matrix

FACTS = [
    facts("a", interface("eth0", "10.0.0.1"), interface("eth1", "10.1.0.1")),
    facts("b", interface("eth0", "10.9.0.2"), interface("eth1", "10.1.0.2")),
]
ADDRESSES = {"a": ["10.0.0.1", "10.1.0.1"], "b": ["10.9.0.2", "10.1.0.2"]}
#: Only the second network connects the hosts.
SECOND = matrix(ADDRESSES, lambda _, __, address: "reachable" if address.startswith("10.1") else "no-route")


def run(places: Sequence[int] = (0, 0, 1, 1), **changes: Any) -> CollectiveRun:
    return CollectiveRun(
        "control",
        tuple(Slot(rank, place) for rank, place in enumerate(places)),
        CollectiveMessage(numel=4096),
        **changes,
    )


def known(ways: ReachabilityMatrix = SECOND, **changes: Any) -> KnownHosts:
    return KnownHosts(["a", "b"], FACTS, ways, Deadlines(), **changes)


def made(variable: str, control: CollectiveRun, about: KnownHosts | None = None) -> list[CollectiveRun]:
    return make(Treatment(variable), control, about or known())


def changed(control: CollectiveRun, treated: CollectiveRun) -> set[str]:
    return {name for name in CollectiveRun.__dataclass_fields__ if getattr(control, name) != getattr(treated, name)}


def test_every_treatment_of_the_rules_can_be_made(rules: RuleSet) -> None:
    control = run(env={"NCCL_IB_DISABLE": "1"}, port=29500, store_address="10.0.0.1", timeout=1.0)
    about = known(odd_slots=(1,), odd_hosts=("b",))
    for cause in rules.causes.values():
        for treatment in cause.experiment.vary:
            assert make(treatment, control, about), f"{cause.id}: {treatment.variable}"
            assert words(treatment)["en"] and words(treatment)["zh"]


def test_variables_are_added_to_those_of_the_job() -> None:
    control = run(env={"NCCL_A": "1", "NCCL_B": "1"})
    (treated,) = make(Treatment("env", env={"NCCL_B": "0", "NCCL_C": "2"}), control, known())
    assert treated.env == {"NCCL_A": "1", "NCCL_B": "0", "NCCL_C": "2"}
    assert changed(control, treated) == {"env"}
    assert control.env == {"NCCL_A": "1", "NCCL_B": "1"}, "the control stays what it was"


@pytest.mark.parametrize(("backend", "name"), [("nccl", "NCCL_SOCKET_IFNAME"), ("gloo", "GLOO_SOCKET_IFNAME")])
def test_another_interface_that_all_hosts_reach(backend: str, name: str) -> None:
    control = run(backend=backend, per_rank_env={rank: {name: "eth0", "NCCL_HOSTID": str(rank)} for rank in range(4)})
    (treated,) = made("interface", control)
    assert treated.per_rank_env == {rank: {name: "eth1", "NCCL_HOSTID": str(rank)} for rank in range(4)}
    assert changed(control, treated) == {"per_rank_env"}


def test_no_interface_that_all_hosts_reach() -> None:
    nothing = matrix(ADDRESSES, lambda *_: "silent")
    assert made("interface", run(backend="nccl"), known(nothing)) == []


def test_the_same_interface_again_is_no_treatment() -> None:
    only = [facts("a", interface("eth0", "10.0.0.1")), facts("b", interface("eth0", "10.0.0.2"))]
    about = replace(known(matrix({"a": ["10.0.0.1"], "b": ["10.0.0.2"]})), facts=only)
    assert make(Treatment("interface"), run(backend="nccl", env={"NCCL_SOCKET_IFNAME": "eth0"}), about) == []
    hostid = {rank: {"NCCL_HOSTID": str(rank)} for rank in range(4)}
    named = run(backend="nccl", env={"NCCL_SOCKET_IFNAME": "eth0"}, per_rank_env=hostid)
    assert make(Treatment("interface"), named, about) == []


def test_a_loopback_is_never_chosen_between_hosts() -> None:
    ways = matrix(
        {"a": ["127.0.0.1", "10.0.0.1"], "b": ["127.0.0.1", "10.9.0.2"]},
        lambda *way: "reachable" if way[2].startswith("127") else "silent",
    )
    assert made("interface", run(backend="nccl"), known(ways)) == []


def test_an_interface_on_one_host_needs_no_probe() -> None:
    control = run((0, 0), backend="gloo", per_rank_env={rank: {"GLOO_SOCKET_IFNAME": "bond7"} for rank in range(2)})
    (treated,) = made("interface", control, known(ReachabilityMatrix()))
    assert treated.per_rank_env[0] == {"GLOO_SOCKET_IFNAME": "eth0"}, "that of the default route first"


def test_all_ranks_inside_one_host_and_then_the_other() -> None:
    control = run((0, 0, 1, 1), store_address="10.0.0.1", per_rank_env={2: {"GLOO_SOCKET_IFNAME": "eth1"}})
    one, two = made("placement", control)
    assert (one.places, two.places) == ((0,), (1,))
    assert [slot.number for slot in one.slots] == [0, 1, 2, 3], "what happens to a rank must not move to another"
    assert (one.store_address, one.per_rank_env) == (None, {})
    assert two.per_rank_env == {rank: {"GLOO_SOCKET_IFNAME": "eth1"} for rank in range(4)}


def test_inside_one_host_there_are_as_many_ranks_as_gpus() -> None:
    control = run((0,) * 6 + (1,) * 6, backend="nccl")
    places = (HostPlace("a"), HostPlace("b"))
    assert [entry.world for entry in made("placement", control, known(means=Means.alike(places, 4)))] == [4, 4]
    (shared, _) = made("placement", control, known(means=Means.alike(places, 1)))
    assert [shared.per_rank_env[rank]["NCCL_HOSTID"] for rank in range(2)] == ["rank0", "rank1"]
    assert all(entry.world == 8 for entry in made("placement", run((0,) * 6 + (1,) * 6), known()))


def test_inside_one_host_ranks_have_the_gpus_of_that_host() -> None:
    places = (HostPlace("a"), HostPlace("b"))
    a, b = (
        HostMeans(tuple(Gpu(index, uuid=f"GPU-{host}{index}") for index in indices), 4)
        for host, indices in (("a", (0, 1)), ("b", (1, 3)))
    )
    per_rank = {0: {"CUDA_VISIBLE_DEVICES": "GPU-a0,GPU-a1"}, 1: {"CUDA_VISIBLE_DEVICES": "GPU-b1,GPU-b3"}}
    slots = (Slot(0, 0, SlotGpu(0, 0, "GPU-a0")), Slot(1, 1, SlotGpu(0, 1, "GPU-b1")))
    control = replace(run((0, 1), backend="nccl", per_rank_env=per_rank), slots=slots)
    one, two = made("placement", control, known(means=Means(places, (a, b))))
    assert [slot.gpu and (slot.gpu.device, slot.gpu.uuid) for slot in two.slots] == [(0, "GPU-b1"), (1, "GPU-b3")]
    assert two.per_rank_env == {rank: {"CUDA_VISIBLE_DEVICES": "GPU-b1,GPU-b3"} for rank in range(2)}
    assert one.env_of(1)["CUDA_VISIBLE_DEVICES"] == "GPU-a0,GPU-a1"
    alone = HostMeans((Gpu(0, uuid="GPU-b0", compute_mode="exclusive-process"),), 1)
    assert [run.places for run in made("placement", control, known(means=Means(places, (a, alone))))] == [(0,)]


def test_one_host_has_no_other_placement() -> None:
    assert made("placement", run((0, 0))) == []


def test_without_the_ranks_or_hosts_that_stand_out() -> None:
    control = run(
        (0, 0, 1, 1), per_rank_env={rank: {"NCCL_HOSTID": f"rank{rank}"} for rank in range(4)}, store_address="x"
    )
    (treated,) = made("members", control, known(odd_slots=(1,), odd_hosts=("b",)))
    assert [slot.number for slot in treated.slots] == [0, 2, 3], "a rank goes before its host"
    assert treated.per_rank_env == {
        0: {"NCCL_HOSTID": "rank0"},
        1: {"NCCL_HOSTID": "rank2"},
        2: {"NCCL_HOSTID": "rank3"},
    }
    assert treated.store_address is None, "rank 0 may be another now"
    (hosts,) = made("members", control, known(odd_hosts=("a",)))
    assert hosts.places == (1,)


@pytest.mark.parametrize(
    "about", [{}, {"odd_slots": (9,)}, {"odd_hosts": ("c",)}, {"odd_slots": (0, 1, 2)}, {"odd_hosts": ("a", "b")}]
)
def test_nobody_to_leave_out_or_nobody_left(about: dict[str, Any]) -> None:
    assert made("members", run(), known(**about)) == []
    assert without(run(), slots=about.get("odd_slots", ())) is None


def test_a_small_message() -> None:
    control = run(more=(CollectiveMessage(numel=4096, dtype="bfloat16"), CollectiveMessage(numel=3)))
    (treated,) = made("size", control)
    assert [part.numel for part in (treated.message, *treated.more)] == [16, 16, 3]
    assert changed(control, treated) == {"message", "more"}
    assert made("size", treated) == []


def test_a_longer_timeout_within_what_the_parent_waits() -> None:
    about = known()
    (treated,) = made("timeout", run(timeout=1.0), about)
    assert treated.timeout == 10.0
    assert made("timeout", run(timeout=about.deadlines.first * 2), about) == [], "no longer one fits"
    (usual,) = made("timeout", run(), about)
    assert usual.timeout is not None and usual.timeout <= about.deadlines.first * 3


def test_another_port_and_another_address() -> None:
    control = run(port=29500, store_address="10.0.0.1")
    (port,), (address,) = made("port", control), made("address", control)
    assert (port.port, port.store_address) == (None, "10.0.0.1")
    assert (address.port, address.store_address) == (29500, None)
    assert made("port", run()) == [] and made("address", run()) == []


def test_the_variables_that_the_evidence_names_go_first() -> None:
    control = run(env={"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL", "NCCL_SOCKET_IFNAME": "eth0", "TORCH_NCCL_X": "1"})
    (named,) = made("variables", control, known(suspect_variables=("NCCL_ALGO", "NCCL_ABSENT")))
    assert named.env == {"NCCL_PROTO": "LL", "NCCL_SOCKET_IFNAME": "eth0", "TORCH_NCCL_X": "1"}
    (every,) = made("variables", control)
    assert every.env == {"NCCL_SOCKET_IFNAME": "eth0", "TORCH_NCCL_X": "1"}, "not the choice of the network"
    assert made("variables", run(env={"NCCL_SOCKET_IFNAME": "eth0"})) == []


@pytest.mark.parametrize("treatment", [Treatment("variables"), Treatment("env", env={"NCCL_SOCKET_IFNAME": "eth1"})])
def test_gloo_does_not_keep_the_interface_that_came_from_a_changed_variable(treatment: Treatment) -> None:
    """On Gloo the session has translated NCCL's variable; the translation must go with it, or nothing is changed."""
    own = {rank: {"GLOO_SOCKET_IFNAME": "eth0", "OTHER": "1"} for rank in range(4)}
    control = run(backend="gloo", env={"NCCL_SOCKET_IFNAME": "eth0"}, per_rank_env=own)
    (treated,) = make(treatment, control, known(suspect_variables=("NCCL_SOCKET_IFNAME",)))
    assert treated.per_rank_env == {rank: {"OTHER": "1"} for rank in range(4)}
    untouched = make(Treatment("env", env={"NCCL_P2P_DISABLE": "1"}), control, known())[0]
    assert untouched.per_rank_env == own
