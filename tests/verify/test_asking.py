"""The hosts are asked before the plan is made: real agents, each with the GPUs that its own nvidia-smi prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corpus.verifier.documents import document
from nccl_triage.engine.schema import RuleSet
from nccl_triage.hosts.probes import inventory
from nccl_triage.verify import api, plan
from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.means import Means
from nccl_triage.verify.plan import Plan, Planned, PlanOptions
from nccl_triage.verify.question import Question
from tests.verify.smi_host import Row, SmiHost

pytestmark = pytest.mark.xdist_group("verify-asking")


@pytest.fixture(autouse=True)
def no_gpus_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This host is a login node."""
    monkeypatch.setattr(inventory, "visible", lambda: pytest.fail("the asking host's GPUs say nothing of others"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def idle(letter: str, count: int = 2) -> list[Row]:
    return [Row(index, f"GPU-{letter}{index}") for index in range(count)]


def settings(*hosts: str, **changes: Any) -> api.Settings:
    each = changes.pop("ranks_per_host", None)
    return api.Settings(hosts=hosts, ranks_per_host=each, options=PlanOptions(**changes))


def ask(tmp_path: Path, wish: api.Settings) -> Means:
    (tmp_path / "session").mkdir()
    with api.launcher_of(wish, Question(()), tmp_path / "session") as launcher, Cluster(launcher) as cluster:
        return api.ask_hosts(cluster, wish)


def planned(means: Means, rules: RuleSet, cause: str, wish: api.Settings, **asked: Any) -> Planned:
    question = api.question_of(document(cause, **{"backend": "nccl", "world": None, **asked}), wish.options)
    made: Plan = plan.build(question, rules.causes, means, wish.options)
    return made.experiments[0]


def gpus_of(found: Planned) -> list[tuple[int, str, int]]:
    assert found.control is not None, found.why_not
    return [(slot.place, slot.gpu.uuid, slot.gpu.device) for slot in found.control.slots if slot.gpu is not None]


def envs(found: Planned, name: str) -> list[str | None]:
    assert found.control is not None
    return [found.control.env_of(rank).get(name) for rank in range(found.control.world)]


def test_a_login_node_plans_nccl_for_two_hosts_with_idle_gpus(tmp_path: Path, rules: RuleSet) -> None:
    a, b = (SmiHost(tmp_path / name, f"gpu-{name}", idle(name)) for name in "ab")
    wish = settings(a.command(), b.command())
    means = ask(tmp_path, wish)
    assert (means.gpus, means.torch, [host.nccl for host in means.hosts]) == (2, "2.9.1+cu128", ["2.27.5"] * 2)
    found = planned(means, rules, "network-link-fault", wish, world=4, hosts=["gpu-a", "gpu-b"])
    assert found.control is not None and found.control.backend == "nccl"
    assert gpus_of(found) == [(0, "GPU-a0", 0), (0, "GPU-a1", 1), (1, "GPU-b0", 0), (1, "GPU-b1", 1)]
    assert envs(found, "CUDA_VISIBLE_DEVICES") == ["GPU-a0,GPU-a1"] * 2 + ["GPU-b0,GPU-b1"] * 2
    assert [slot.gpu.bus for slot in found.control.slots if slot.gpu] == ["0000:10:00", "0000:11:00"] * 2


def test_a_busy_gpu_of_one_host_is_left_alone_there_only(tmp_path: Path, rules: RuleSet) -> None:
    a = SmiHost(tmp_path / "a", "gpu-a", [Row(0, "GPU-a0", apps=[4321]), Row(1, "GPU-a1", busy=90), Row(2, "GPU-a2")])
    b = SmiHost(tmp_path / "b", "gpu-b", idle("b", 3))
    wish = settings(a.command(), b.command())
    means = ask(tmp_path, wish)
    assert [refusal.rule for refusal in means.hosts[0].refusals] == ["processes", "utilisation"]
    found = planned(means, rules, "network-link-fault", wish, world=6)
    assert gpus_of(found) == [(0, "GPU-a2", 0), *((1, f"GPU-b{k}", k) for k in range(3))]
    assert envs(found, "CUDA_VISIBLE_DEVICES") == ["GPU-a2", *["GPU-b0,GPU-b1,GPU-b2"] * 3]


def test_whoever_allows_busy_gpus_gets_all_but_those_that_take_no_program(tmp_path: Path) -> None:
    rows = [Row(0, "GPU-a0", apps=[1]), Row(1, "GPU-a1", mode="Prohibited"), Row(2, "GPU-a2", used=9000)]
    a = SmiHost(tmp_path / "a", "gpu-a", rows)
    means = ask(tmp_path, settings(a.command(), allow_busy=True))
    assert [gpu.index for gpu in means.hosts[0].gpus] == [0, 2]


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        ({"version": "2.9.1+cpu", "cuda": None}, "is built without CUDA"),
        ({"nccl": None}, "has no NCCL (AttributeError: module 'torch._C' has no attribute '_nccl_version')"),
        ({"version": "2.9.1+rocm6.4", "cuda": None, "hip": "6.4"}, "AMD's GPUs (ROCm)"),
    ],
)
@pytest.mark.parametrize("backend", ["nccl", "auto"])
def test_a_torch_that_has_no_nccl_is_known_before_anything_runs(
    tmp_path: Path, rules: RuleSet, torch: dict[str, object], words: str, backend: str
) -> None:
    a = SmiHost(tmp_path / "a", "gpu-a", idle("a"), torch)
    wish = settings(a.command(), backend=backend)
    means = ask(tmp_path, wish)
    found = planned(means, rules, "gpu-p2p-broken", wish)
    assert found.control is None and found.why_not is not None
    assert words in found.why_not["en"] and found.why_not["zh"] != found.why_not["en"]
    other = planned(means, rules, "rank-divergence", wish)
    if backend == "nccl":
        assert other.control is None and other.why_not is not None and words in other.why_not["en"]
    else:
        assert other.control is not None and other.control.backend == "gloo"


def test_a_torch_that_cannot_be_imported_runs_nothing(tmp_path: Path, rules: RuleSet) -> None:
    a = SmiHost(tmp_path / "a", "gpu-a", idle("a"))
    b = SmiHost(tmp_path / "b", "gpu-b", idle("b"))
    (tmp_path / "b" / "modules" / "torch" / "__init__.py").write_text("import libtorch_cuda_missing")
    wish = settings(a.command(), b.command())
    found = planned(ask(tmp_path, wish), rules, "rank-divergence", wish, world=4)
    assert found.control is None and found.why_not is not None
    assert found.why_not["en"].startswith("gpu-b: torch cannot be imported: ModuleNotFoundError")


def test_exclusive_process_mode_takes_one_rank_a_gpu(tmp_path: Path, rules: RuleSet) -> None:
    rows = [Row(index, f"GPU-a{index}", mode="Exclusive_Process") for index in range(2)]
    a = SmiHost(tmp_path / "a", "gpu-a", rows)
    wish = settings(a.command())
    means = ask(tmp_path, wish)
    assert gpus_of(planned(means, rules, "gpu-p2p-broken", wish)) == [(0, "GPU-a0", 0), (0, "GPU-a1", 1)]
    crowded = planned(means, rules, "gpu-p2p-broken", settings(world=3))
    assert crowded.control is None and crowded.why_not is not None and "exclusive-process" in crowded.why_not["en"]


def test_mig_is_refused_unless_an_instance_is_named_which_takes_one_rank(tmp_path: Path, rules: RuleSet) -> None:
    rows = [Row(0, "GPU-a0", mig="Enabled", instances=["MIG-11-22", "MIG-33-44"])]
    a = SmiHost(tmp_path / "a", "gpu-a", rows)
    means = ask(tmp_path, settings(a.command()))
    assert means.gpus == 0 and "divided by MIG" in means.no_gpu["en"]
    assert "--allow-busy" not in means.no_gpu["en"], "it would not help"
    b = SmiHost(tmp_path / "b", "gpu-b", rows)
    (tmp_path / "session").rename(tmp_path / "first")
    wish = settings(b.command(CUDA_VISIBLE_DEVICES="MIG-33-44"))
    means = ask(tmp_path, wish)
    alone = planned(means, rules, "gpu-hardware-fault", wish)
    assert gpus_of(alone) == [(0, "MIG-33-44", 0)]
    assert envs(alone, "CUDA_VISIBLE_DEVICES") == ["MIG-33-44"]
    crowded = planned(means, rules, "gpu-p2p-broken", wish)
    assert crowded.why_not is not None and "2.30.7" in crowded.why_not["en"]


def test_a_host_without_gpus_is_named(tmp_path: Path, rules: RuleSet) -> None:
    a, b = SmiHost(tmp_path / "a", "gpu-a", idle("a")), SmiHost(tmp_path / "b", "gpu-b")
    wish = settings(a.command(), b.command())
    means = ask(tmp_path, wish)
    found = planned(means, rules, "network-ib-link-fault", wish, world=4)
    assert found.why_not is not None and "gpu-b: " in found.why_not["en"]
    # What happens inside a host is tested on the one that has GPUs.
    assert gpus_of(planned(means, rules, "gpu-p2p-broken", wish)) == [(0, "GPU-a0", 0), (0, "GPU-a1", 1)]


def test_ranks_per_host_is_a_count(tmp_path: Path, rules: RuleSet) -> None:
    a, b = (SmiHost(tmp_path / name, f"gpu-{name}", idle(name, 8)) for name in "ab")
    wish = settings(a.command(), b.command(), ranks_per_host=8)
    means = ask(tmp_path, wish)
    assert len(gpus_of(planned(means, rules, "network-link-fault", wish, world=2))) == 16


def test_a_dry_run_reaches_no_host(rules: RuleSet) -> None:
    asked = document("network-link-fault", world=16, hosts=["gpu-a", "gpu-b"], backend="nccl")
    made = api.plan_of(asked, rules, settings("gpu-a=/no/such/command", "gpu-b=/no/such/command"))
    control = made.experiments[0].control
    assert control is not None and (control.backend, control.world, control.shares_gpus) == ("nccl", 16, False)
    ray = api.plan_of(asked, rules, api.Settings(launcher="ray"))
    assert [place.name for place in ray.means.places] == ["gpu-a", "gpu-b"]
    assert ray.experiments[0].control is not None and ray.experiments[0].control.world == 16
    many = api.plan_of(asked, rules, replace(settings("a=false", "b=false"), ranks_per_host=12))
    assert many.experiments[0].control is not None and many.experiments[0].control.world == 24


def test_a_report_is_verified_on_idle_gpus_only_if_there_are_some(tmp_path: Path, rules: RuleSet) -> None:
    host = SmiHost(tmp_path / "a", "gpu-a", [Row(0, "GPU-a0", apps=[4321])])
    wish = replace(settings(host.command()), wait=120.0)
    with pytest.raises(api.NoIdleGpuError) as caught:
        api.verify(document("rank-divergence", world=2), rules, wish, on_gpus=True)
    assert "4321" in caught.value.why["en"] and "4321" in caught.value.why["zh"]


@pytest.mark.parametrize("cause", ["storage-fault", "gpu-out-of-memory"])
def test_what_no_collective_can_show_reaches_no_host(rules: RuleSet, cause: str) -> None:
    changed, report = api.verify(document(cause, world=2), rules, settings("gpu-a=/no/such/command"))
    assert changed["diagnoses"][0]["verification"]["outcome"] == "not-testable"
    assert report.trials == []
