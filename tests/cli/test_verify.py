"""``nccl-triage verify``: the plan on a machine that can run nothing, and what is advised instead."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nccl_triage.cli import cli
from nccl_triage.hosts.probes import host, inventory
from nccl_triage.render.words import columns
from nccl_triage.verify import api

#: Two hosts of one Ray job in networks without a route, in which a broadcast failed.
LOG = """\
2025-06-03 09:02:11,418	INFO worker.py:1654 -- Connecting to existing Ray cluster at address: 45.63.16.199:6379...
(Actor pid=18844) init_process_group: master_address=45.63.16.199, master_port=44123,  rank=0, world_size=2, group_name=x
(LLM pid=30211, ip=144.202.8.219) init_process_group: master_address=45.63.16.199, master_port=44123,  rank=1, world_size=2, group_name=x
(Actor pid=18844) gpu-a:18844:18844 [0] NCCL INFO Bootstrap : Using enp1s0:45.63.16.199<0>
(LLM pid=30211, ip=144.202.8.219) gpu-b:30211:30211 [0] NCCL INFO Bootstrap : Using enp1s0:144.202.8.219<0>
(Actor pid=18844) gpu-a:18844:19902 [0] NCCL INFO NET/Socket : Using [0]enp1s0:45.63.16.199<0>
(LLM pid=30211, ip=144.202.8.219) gpu-b:30211:30777 [0] NCCL INFO NET/Socket : Using [0]enp1s0:144.202.8.219<0>
(Actor pid=18844) gpu-a:18844:20114 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 144.202.8.219<51873> failed : Software caused connection abort
Traceback (most recent call last):
  File "/workspace/trainer/ppo_actor.py", line 161, in _broadcast_to_vllm
    torch.distributed.broadcast(param.data, 0, group=self._model_update_group)
torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3384, remote process exited or there was a network error, NCCL version 2.21.5
"""


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """This host has no GPU and is none of the job's."""
    monkeypatch.setattr(inventory, "likely_present", lambda: False)
    monkeypatch.setattr(os, "uname", lambda: type("Name", (), {"nodename": "laptop"})())
    monkeypatch.setattr(host, "interfaces", list)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("job.log").write_text(LOG)
    return "job.log"


def verify(*args: object) -> Result:
    result = CliRunner().invoke(cli, ["verify", *map(str, args)])
    assert result.exit_code == 0, result.output
    return result


def plan(*args: object) -> Any:
    return json.loads(verify(*args, "--dry-run", "--format", "json").stdout)


def test_the_plan_names_the_collective_on_a_machine_that_can_run_nothing(log: str) -> None:
    (entry,) = plan(log)["experiments"]
    asked = entry["asked"]
    assert (entry["cause"], entry["control"]) == ("network-unreachable-subnet", None)
    assert {"op": "BROADCAST", "root": 0, "numel": 1 << 20, "dtype": "float32", "bytes": 4 << 20}.items() <= asked[
        "collective"
    ].items()
    assert [(part["dtype"], part["bytes"]) for part in asked["further"]] == [("bfloat16", 2 << 20)]
    assert (asked["hosts"], asked["ranks_per_host"], asked["backend"]) == (["gpu-a", "gpu-b"], [1, 1], "nccl")
    assert not asked["size_known"]
    assert [item["changed"] for item in asked["treatments"]] == [
        "on an interface that all hosts can reach", "with all ranks on one host",
    ]  # fmt: skip
    assert entry["decides"]["refuted_if"] == "all probes and the control pass"
    assert entry["decides"]["refuted_if_zh"] == "所有探测和对照实验都通过"
    assert "at least two hosts" in entry["why_not"]


def test_the_plan_names_who_would_be_contacted_and_nobody_else(log: str) -> None:
    told = plan(log)["contacts"]
    assert told["hosts"] == [
        {"name": "gpu-a", "addresses": ["45.63.16.199"], "by": "ray"},
        {"name": "gpu-b", "addresses": ["144.202.8.219"], "by": "ray"},
    ]
    assert told["store"] == {"host": "gpu-a", "ports": [None]}
    assert told["probe"] == {"ports_per_address": 20, "port_of_log": 44123}
    assert told["elsewhere"] == []


def test_the_plan_has_a_command_for_every_launcher_the_job_s_own_first(log: str) -> None:
    commands = {entry["launcher"]: entry["commands"] for entry in plan(log)["commands"]}
    assert list(commands) == ["ray", "ssh", "slurm", "torchrun"]
    assert commands["ray"] == ["nccl-triage verify job.log --launcher ray --ray-address 45.63.16.199:6379"]
    assert commands["ssh"] == ["nccl-triage verify job.log --host gpu-a --host gpu-b"]


TEXT = """\
nccl-triage: plan: nothing has been run

  network-unreachable-subnet (supported, 0.90)
    control: broadcast from rank 0, 1,048,576 x float32 (4 MiB), bfloat16 (2 MiB); 2 ranks, 1 on each of gpu-a, gpu-b; NCCL; 2 times
    treatment: on an interface that all hosts can reach, 2 times, if the control fails
    treatment: with all ranks on one host, 2 times, if the control fails
    differs from the failure: the log does not show the size of the collective
    confirmed if: the probe shows no route or no answer on the address of the log and the treatment passes
    refuted if: all probes and the control pass
"""


def test_the_plan_as_text(log: str) -> None:
    shown = verify(log, "--dry-run").stdout
    for part in TEXT.splitlines():
        assert part.partition(" (supported")[0] in shown
    assert "    here: not run: it needs at least two hosts of the job (gpu-a, gpu-b)" in shown
    assert "  contacts: only gpu-a (45.63.16.199), gpu-b (144.202.8.219); through the Ray cluster\n" in shown
    assert (
        "    TCP ports between them: a free port on gpu-a (store); 20 free ports of each address, probed both ways; "
        "port 44123 of the log; those that NCCL chooses\n"
    ) in shown
    assert shown.index("--launcher ray") < shown.index("--host gpu-a --host gpu-b")


def test_the_plan_in_chinese_has_no_english_of_ours(log: str) -> None:
    shown = verify(log, "--dry-run", "--lang", "zh").stdout
    assert "对照实验：broadcast 从 rank 0 发出，1,048,576 x float32" in shown
    assert "证实条件：探测显示" in shown
    assert not any(word in shown for word in ("confirmed if", "treatment", "contacts", "not run", "times"))


@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_plan_is_folded_but_for_its_commands(log: str, width: int, lang: Any) -> None:
    from nccl_triage.render.plan_text import plan_text

    lines = plan_text(plan(log), lang, width).splitlines()
    assert all(columns(line) <= width for line in lines if not line.lstrip().startswith("$ "))
    assert sum(line.startswith("    $ ") for line in lines) == 4


def test_hosts_that_are_named_are_planned_for(log: str) -> None:
    told = plan(log, "--host", "gpu-a", "--host", "gpu-b", "--backend", "nccl")
    (entry,) = told["experiments"]
    assert (entry["control"]["op"], entry["control"]["ranks_per_host"]) == ("BROADCAST", [1, 1])
    assert [found["by"] for found in told["contacts"]["hosts"]] == ["ssh", "ssh"]
    assert told["commands"][0]["launcher"] == "ssh"


def test_an_address_that_the_log_ties_to_a_host_is_that_host(log: str) -> None:
    told = plan(log, "--host", "45.63.16.199", "--host", "144.202.8.219=ssh -p 2222 x", "--backend", "nccl")
    assert told["hosts"] == ["gpu-a", "gpu-b"]
    (entry,) = told["experiments"]
    assert not any("does not name" in text for text in entry["differs"])
    assert [found["by"] for found in told["contacts"]["hosts"]] == ["ssh", "ssh -p 2222 x"]
    failed = CliRunner().invoke(cli, ["verify", log, "--host", "gpu-a", "--host", "45.63.16.199", "--dry-run"])
    assert "names a host twice" in str(failed.exception)


def test_this_host_is_known_by_its_address(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"name": "eth0", "address": "45.63.16.199", "loopback": False}
    monkeypatch.setattr(host, "interfaces", lambda: [entry])
    assert plan(log)["hosts"] == ["gpu-a"]
    monkeypatch.setattr(host, "interfaces", lambda: [{**entry, "name": "docker0"}])
    assert plan(log)["hosts"] == ["laptop"]


@pytest.mark.parametrize(("launcher", "by"), [("slurm", "slurm"), ("print", "torchrun")])
def test_the_plan_of_files_shows_what_would_be_written_and_writes_nothing(log: str, launcher: str, by: str) -> None:
    before = sorted(Path().iterdir())
    told = plan(log, "--launcher", launcher)
    assert told["would_write"]["folder"] == "nccl-triage-check"
    lines = told["would_write"]["commands"]
    assert lines[0].startswith("# run-01: BROADCAST on 2 ranks on 2 hosts, nccl")
    assert ("srun --nodes=2 --ntasks=2" if launcher == "slurm" else '"$torchrun" --nnodes=2') in lines[1]
    assert (told["launcher"], told["commands"][0]["launcher"]) == (launcher, by)
    shown = verify(log, "--launcher", launcher, "--dry-run", "--workdir", "other").stdout
    assert "  would write: other\n" in shown
    assert lines[1] in shown
    assert sorted(Path().iterdir()) == before


def test_the_plan_for_ray_is_that_of_the_job(log: str) -> None:
    told = plan(log, "--launcher", "ray")
    assert told["hosts"] == ["gpu-a", "gpu-b"]
    assert told["experiments"][0]["control"]["op"] == "BROADCAST"


def test_slurm_gets_the_names_of_the_log_for_its_addresses(log: str) -> None:
    shown = plan(log, "--launcher", "slurm", "--host", "144.202.8.219", "--host", "45.63.16.199")
    assert "--nodelist=gpu-b,gpu-a" in shown["would_write"]["commands"][1]


def test_a_log_without_a_failure_has_nothing_to_test(tmp_path: Path) -> None:
    path = tmp_path / "fine.log"
    path.write_text("INFO: epoch 1 done\nTraining finished successfully\n")
    assert "nothing to test" in verify(path, "--dry-run").stdout


def words_of(page: str) -> str:
    """Return a page's text: a command is coloured word by word."""
    return html.unescape(re.sub(r"<[^>]*>", "", page)) if page.startswith("<!doctype") else page


@pytest.mark.parametrize("format", ["text", "markdown", "html", "json"])
def test_what_has_not_run_is_not_advised_again(log: str, format: str) -> None:
    shown = words_of(verify(log, "--format", format).stdout)
    assert "--launcher ray --ray-address 45.63.16.199:6379" in shown
    assert "nccl-triage verify job.log\n" not in shown
    if format == "json":
        (entry, *_) = json.loads(shown)["diagnoses"]
        assert entry["verification"]["outcome"] == "not-run"
        assert [item["launcher"] for item in entry["verification"]["to_confirm"]] == ["ray", "ssh", "torchrun"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return how often anything was started."""
    count = 0

    def start(*args: Any, **how: Any) -> Any:
        nonlocal count
        count += 1
        raise AssertionError("nothing may be started")

    monkeypatch.setattr(api, "launcher_of", start)
    return lambda: count


#: A port that is taken on the host of the job, which nothing here can say anything about.
PORT = """\
gpu-a:18844:18844 [0] NCCL INFO Bootstrap : Using enp1s0:45.63.16.199<0>
[W socket.cpp:601] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).
torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use
"""


def test_a_run_that_can_decide_nothing_is_not_started(log: str, started: Callable[[], int]) -> None:
    Path(log).write_text(PORT)
    shown = verify(log).stdout
    assert "verification: not run: a run on laptop cannot decide it: the job ran on gpu-a" in shown
    assert "    $ nccl-triage verify job.log --host gpu-a\n" in shown
    assert started() == 0
    assert plan(log)["experiments"][0]["why_not_zh"] == "在 laptop 上运行不能得出结论：作业运行在 gpu-a"


@pytest.mark.parametrize(
    "options", [["--host", "laptop"], ["--world", "2"], ["--ranks-per-host", "2"], ["--backend", "gloo"]]
)
def test_whoever_says_where_or_how_gets_the_run(log: str, options: list[str]) -> None:
    Path(log).write_text(PORT)
    assert plan(log, *options)["experiments"][0]["control"] is not None


def test_a_report_is_not_verified_where_nothing_could_be_decided(log: str, started: Callable[[], int]) -> None:
    Path(log).write_text(PORT)
    result = CliRunner().invoke(cli, ["diagnose", log, "--report", "page.html", "--verify", "always"])
    assert result.exit_code == 0
    assert started() == 0
    assert "nccl-triage verify job.log --host gpu-a" in words_of(Path("page.html").read_text())
    assert "to confirm: nccl-triage verify job.log --host gpu-a" in result.stderr
