"""A plan names the collective, the one thing changed, whom it contacts and a command for each launcher, on any machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nccl_triage.cli import cli
from tests.verify.gpu_host import GpuHost, Machine, gpus
from tests.verify.gpu_sessions import alone, asked, verified

Job = Callable[..., list[GpuHost]]
pytestmark = pytest.mark.xdist_group("gpu-hosts")
SEED = Path(__file__).parents[2] / "corpus" / "written" / "logs" / "S001-openrlhf-broadcast-two-networks.log"


@pytest.fixture(params=["no GPU", "8 GPUs", "8 busy GPUs", "driver mismatch"])
def asking(request: pytest.FixtureRequest, gpu_hosts: Machine) -> GpuHost:
    """A machine on which somebody asks for the plan."""
    busy: dict[str, Any] = {"processes": ((4242, 70000),)} if "busy" in request.param else {}
    own = () if request.param == "no GPU" else gpus(8, **busy)
    return gpu_hosts.host("login", own, smi="mismatch" if "mismatch" in request.param else "ok")


def run(here: GpuHost, *words: str) -> tuple[str, int]:
    with alone(), here.here():
        result = CliRunner().invoke(cli, ["verify", str(SEED), *words])
    return result.stdout, result.exit_code


def test_the_plan_of_the_seed_names_the_collective_on_any_machine(asking: GpuHost) -> None:
    text, code = run(asking, "--dry-run")
    assert code == 0
    for words in ("broadcast from rank 0", "2 ranks", "gpu-a", "gpu-b", "NCCL", "MiB"):
        assert words in text
    # one variable, contacts with addresses, ports
    assert "on an interface that all hosts can reach" in text
    assert "45.63.16.199" in text
    assert "144.202.8.219" in text
    assert "TCP ports" in text
    # a command for each launcher, Ray's with the address of the log
    assert "--launcher ray --ray-address 45.63.16.199:6379" in text
    assert "--host gpu-a --host gpu-b" in text
    assert "--launcher slurm" in text
    assert "torchrun" in text
    assert asking.used == set()
    assert asking.communicators == []


def test_each_hypothesis_of_the_plan_has_its_collective(asking: GpuHost) -> None:
    text, _ = run(asking, "--dry-run", "--format", "json")
    plan = json.loads(text)
    assert plan["experiments"]
    for experiment in plan["experiments"]:
        collective = experiment["asked"]["collective"]
        assert (collective["op"], collective["call"], collective["root"]) == ("BROADCAST", "broadcast", 0)
        assert experiment["asked"]["hosts"] == ["gpu-a", "gpu-b"]
        assert experiment["asked"]["backend"] == "nccl"
        assert experiment["asked"]["world_size"] == 2
        assert experiment["asked"]["treatments"]
    assert [host["addresses"] for host in plan["contacts"]["hosts"]] == [["45.63.16.199"], ["144.202.8.219"]]


@pytest.mark.parametrize(("launcher", "words"), [("slurm", "srun"), ("print", "torchrun")])
def test_a_dry_run_obeys_the_launcher(gpu_hosts: Machine, launcher: str, words: str, tmp_path: Path) -> None:
    text, code = run(gpu_hosts.host("login"), "--dry-run", "--launcher", launcher, "--workdir", str(tmp_path / "new"))
    assert code == 0
    assert words in text
    assert "broadcast" in text
    assert not (tmp_path / "new").exists()


def test_runs_that_can_decide_nothing_here_are_not_run(gpu_hosts: Machine) -> None:
    for own in ((), gpus(2)):
        stranger = gpu_hosts.host("stranger", own)
        text, code = run(stranger, "--format", "json", "--quiet")
        assert code == 0
        found = json.loads(text)["diagnoses"][0]["verification"]
        assert found["outcome"] == "not-run"
        assert found["runs"] == []
        assert stranger.communicators == []


def test_what_has_just_not_run_is_not_advised_again(gpu_hosts: Machine) -> None:
    text, _ = run(gpu_hosts.host("stranger"))
    advised = [line for line in text.splitlines() if "nccl-triage verify" in line]
    assert advised
    # The command that was given, with nothing that would help it to run, is no advice.
    assert all(any(option in line for option in ("--host", "--launcher", "--ray-address")) for line in advised)


def test_an_address_that_the_log_ties_to_a_host_is_that_host(gpu_hosts: Machine, job: Job) -> None:
    hosts = job(gpus(1))
    addresses = {host.name: [host.spec.address] for host in hosts}
    wanted = asked("network-wrong-interface", env={"NCCL_SOCKET_IFNAME": "eth"}, addresses=addresses)
    for host in hosts:
        # Behind the address, the command of that host.
        host.spec.name = host.spec.address
    found = verified(wanted, hosts)
    assert "does not name" not in found.says
    assert found.outcome == "refuted"


def test_a_host_that_the_log_does_not_know_is_said_to_be_strange(job: Job) -> None:
    found = verified(asked("network-wrong-interface", env={"NCCL_SOCKET_IFNAME": "eth"}), job(names=("x1", "x2")))
    assert "x1" in found.says
    assert found.outcome != "refuted"


def test_a_plan_for_told_hosts_shows_them(gpu_hosts: Machine, job: Job) -> None:
    options = [word for host in job(gpus(1)) for word in ("--host", host.option)]
    text, code = run(gpu_hosts.host("login"), "--dry-run", *options)
    assert code == 0
    assert "broadcast from rank 0" in text
    assert "gpu-a" in text
    assert "gpu-b" in text
