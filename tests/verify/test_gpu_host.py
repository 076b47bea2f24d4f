"""The hosts with GPUs that exist only in files do what tests build on: real agents and ranks, with doubles of CUDA and NCCL."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.processes import ProcessLauncher
from nccl_triage.verify import runner
from nccl_triage.verify.cluster import Cluster, worker
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, Deadlines, RunResult, Slot
from tests.verify.gpu_host import Fault, Gpu, GpuHost, Machine, Torch, gpus, machine

pytestmark = pytest.mark.xdist_group("gpu-hosts")
QUICK = Deadlines(start=20.0, store=6.0, group=8.0, entered=6.0, first=6.0, timed=8.0, grace=2.0)
NO_SLEEP = {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "100"}


def said(host: GpuHost, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        f"{host.command} {subprocess.list2cmdline(words)}", shell=True, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def python(host: GpuHost, text: str, env: str = "") -> str:
    done = subprocess.run(
        ["sh", "-c", f'{env} {host.command} "$0" -c "$1"', sys.executable, text],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return (done.stdout + done.stderr).strip()


@pytest.fixture
def ran(tmp_path: Path) -> Callable[..., RunResult]:
    """Run one collective on hosts: ``ran(hosts, per_host, ...)``."""

    def run(hosts: list[GpuHost], each: int = 1, message: CollectiveMessage | None = None, **changes: Any) -> RunResult:
        places = [HostPlace(host.name, (str(host.folder / "enter"),)) for host in hosts]
        (tmp_path / "worker").mkdir(exist_ok=True)
        with Cluster(ProcessLauncher(places, worker())) as cluster:
            cluster.greet(20.0)
            slots = tuple(Slot(rank, rank // each) for rank in range(each * len(hosts)))
            made = CollectiveRun(
                "try",
                slots,
                message or CollectiveMessage(numel=4096),
                backend="nccl",
                device="cuda",
                env={**NO_SLEEP, **changes.pop("env", {})},
                store_address=hosts[0].spec.address if len(hosts) > 1 else None,
                **changes,
            )
            return runner.execute(cluster, made, tmp_path / "try", QUICK, method="spawn")

    return run


def errors(result: RunResult) -> str:
    return " ".join(str(trace.error["text"]) for trace in result.ranks.values() if trace.error)


def logs(result: RunResult) -> str:
    return "".join(path.read_text() for path in sorted(Path(str(result.folder)).glob("rank-*.log")))


# the host


def test_a_host_has_its_name_its_gpus_and_its_torch(gpu_hosts: Machine) -> None:
    host = gpu_hosts.host("gpu-a", gpus(2, memory_total_mib=1000))
    assert said(host, "nvidia-smi", "-L").count("NVIDIA H100") == 2
    asked = "--query-gpu=index,pci.bus_id,memory.total,mig.mode.current,gpu_recovery_action"
    assert said(host, "nvidia-smi", asked, "--format=csv,noheader,nounits").splitlines() == [
        "0, 00000000:19:00.0, 1000, Disabled, None",
        "1, 00000000:21:00.0, 1000, Disabled, None",
    ]
    told = python(
        host,
        "import torch, socket, os; p = torch.cuda.get_device_properties(1); "
        "print(socket.gethostname(), os.uname().nodename, torch.cuda.device_count(), torch.__version__, p.total_memory >> 20, "
        "p.pci_bus_id, torch.cuda.nccl.version(), torch.zeros(3, device='cuda:1').sum().item())",
    )
    assert told == "gpu-a gpu-a 2 2.13.0+cu128 1000 33 (2, 27, 5) 0.0"


def test_hosts_without_a_starter_are_the_same(gpu_hosts: Machine) -> None:
    with machine(quick=False) as made:
        host = made.host("gpu-slow", gpus(1))
        text = "import torch, socket; print(socket.gethostname(), torch.cuda.device_count(), torch.__version__)"
        assert python(host, text) == "gpu-slow 1 2.13.0+cu128"


@pytest.mark.parametrize(
    ("smi", "code", "words"),
    [
        ("no-devices", 6, "No devices were found"),
        ("no-driver", 9, "communicate with the NVIDIA driver"),
        ("mismatch", 18, "Driver/library version mismatch"),
    ],
)
def test_a_tool_that_refuses(gpu_hosts: Machine, smi: str, code: int, words: str) -> None:
    assert words in said(gpu_hosts.host("gpu-a", gpus(1), smi=smi), "nvidia-smi", "-L", code=code)


def test_lost_divided_and_busy_gpus_in_the_tools_tables(gpu_hosts: Machine) -> None:
    host = gpu_hosts.host("gpu-a", (Gpu(fault="lost"), Gpu(mig=True), Gpu(processes=((4242, 900), (4243, None)))))
    rows = said(host, "nvidia-smi", "--query-gpu=index,memory.used", "--format=csv,noheader,nounits").splitlines()
    assert rows == ["0, [GPU is lost]", "1, 1", "2, 1"]
    assert said(host, "nvidia-smi", "-L").count("UUID: MIG-") == 2
    apps = said(host, "nvidia-smi", "--query-compute-apps=pid,used_gpu_memory", "--format=csv,noheader,nounits")
    assert apps.splitlines() == ["4242, 900", "4243, [N/A]"]
    unknown = gpu_hosts.host("gpu-old", gpus(1), smi_unknown=("gpu_recovery_action",))
    said(unknown, "nvidia-smi", "--query-gpu=uuid,gpu_recovery_action", code=2)


@pytest.mark.parametrize(
    ("visible", "seen"),
    [("1", [1]), ("2,0", [2, 0]), ("0,9,1", [0]), ("", []), ("1,1", []), ("GPU-{1}", [1]), ("MIG-nothing", [])],
)
def test_cuda_visible_devices(gpu_hosts: Machine, visible: str, seen: list[int]) -> None:
    host = gpu_hosts.host("gpu-a", gpus(3))
    value = visible.replace("GPU-{1}", host.told["gpus"][1]["uuid"])
    text = (
        f"import os; os.environ['CUDA_VISIBLE_DEVICES'] = {value!r}; import torch; "
        "print([(torch.cuda.get_device_properties(i).pci_bus_id - 0x19) // 8 for i in range(torch.cuda.device_count())])"
    )
    assert python(host, text) == str(seen)


def test_of_a_divided_gpu_one_instance_is_seen(gpu_hosts: Machine) -> None:
    host = gpu_hosts.host("gpu-a", gpus(2, mig=True))
    text = "import torch; print(torch.cuda.device_count(), torch.cuda.get_device_name(0))"
    assert python(host, text) == "1 NVIDIA H100 80GB HBM3 MIG 1g.10gb"


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        (Torch("missing"), "No module named 'torch'"),
        (Torch("broken"), "libcudart.so.12"),
        (Torch("cpu"), "2.13.0+cpu None None False"),
        (Torch("rocm"), "2.13.0+rocm6.4 None 6.4 False"),
        (Torch(version="2.6.0+cu124"), "2.6.0+cu124 12.8 None True"),
    ],
)
def test_builds_of_torch(gpu_hosts: Machine, torch: Torch, words: str) -> None:
    host = gpu_hosts.host("gpu-a", gpus(1), torch=torch)
    text = "import torch; print(torch.__version__, torch.version.cuda, torch.version.hip, torch.cuda.is_available())"
    assert words in python(host, text)


def test_a_second_process_on_a_gpu_in_exclusive_process_mode_is_refused(gpu_hosts: Machine) -> None:
    host = gpu_hosts.host("gpu-a", gpus(1, compute_mode="Exclusive_Process"))
    text = (
        "import torch, subprocess, sys; torch.cuda.set_device(0); print('first'); sys.stdout.flush(); "
        "print(subprocess.run([sys.executable, '-c', 'import torch; torch.cuda.set_device(0)'], stderr=-1).stderr.decode()[-400:]); "
        "print(subprocess.run(['nvidia-smi', '--query-compute-apps=pid'], stdout=-1).stdout.decode().count('\\n'))"
    )
    told = python(host, text)
    assert "busy or unavailable" in told
    assert told.splitlines()[-1] == "1"


def test_tensors_have_the_bounds_of_the_gpu(gpu_hosts: Machine) -> None:
    host = gpu_hosts.host("gpu-a", gpus(1, memory_total_mib=2000))
    assert "CUDA out of memory. Tried to allocate 4.00 GiB" in python(
        host, "import torch; torch.empty(1 << 30, dtype=torch.float32, device='cuda')"
    )
    assert "No CUDA GPUs are available" in python(gpu_hosts.host("none"), "import torch; torch.empty(1, device='cuda')")


# runs


def test_ranks_of_two_hosts_run_on_their_own_gpus(gpu_hosts: Machine, ran: Callable[..., RunResult]) -> None:
    hosts = [gpu_hosts.host(name, gpus(2)) for name in ("gpu-a", "gpu-b")]
    result = ran(hosts, 2)
    assert result.passed, errors(result) + logs(result)
    assert [host.used for host in hosts] == [{0, 1}, {0, 1}]
    assert sorted(entry["rank"] for host in hosts for entry in host.communicators) == [0, 1, 2, 3]
    buses = [trace.details["device"]["bus"] for trace in result.ranks.values()]
    assert buses == ["0000:19:00", "0000:21:00"] * 2
    assert len({trace.details["imported"]["nccl"] for trace in result.ranks.values()}) == 1


def test_nccl_writes_its_log_where_it_is_told(
    gpu_hosts: Machine, ran: Callable[..., RunResult], tmp_path: Path
) -> None:
    host = gpu_hosts.host("gpu-a", gpus(2))
    result = ran([host], 2, env={"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": f"{tmp_path}/nccl.%h.%p"})
    files = sorted(tmp_path.glob("nccl.gpu-a.*"))
    assert len(files) == 2
    text = "".join(file.read_text() for file in files)
    assert text.count("Init COMPLETE") == 2
    assert "via P2P/CUMEM" in text
    assert "NCCL INFO" not in logs(result)
    other = ran([host], 2, env={"NCCL_DEBUG": "INFO", "NCCL_P2P_DISABLE": "1"})
    assert "via SHM/direct/direct" in logs(other)


def test_a_gpu_that_gives_wrong_data_hangs_or_raises(gpu_hosts: Machine, ran: Callable[..., RunResult]) -> None:
    def host(**fault: Any) -> GpuHost:
        return gpu_hosts.host("gpu-a", (Gpu(), Gpu(faults=(Fault(**fault),))))

    assert ran([host(does="wrong")], 2).outcome == "wrong-data"
    assert ran([host(does="wrong", unless={"NCCL_P2P_DISABLE": "1"})], 2, env={"NCCL_P2P_DISABLE": "1"}).passed
    raised = ran([host(at="init", does="raise")], 2)
    assert "ncclSystemError" in errors(raised)
    assert "Software caused connection abort" in errors(raised)
    hung = ran([host(does="hang")], 2)
    assert not hung.passed
    assert "Watchdog caught collective operation timeout" in logs(hung)


def test_ranks_on_one_gpu_and_different_releases_are_refused(gpu_hosts: Machine, ran: Callable[..., RunResult]) -> None:
    host = gpu_hosts.host("gpu-a", gpus(1))
    assert "Duplicate GPU detected : rank " in errors(ran([host], 2))
    apart = ran([host], 2, per_rank_env={rank: {"NCCL_HOSTID": f"rank{rank}"} for rank in range(2)})
    assert apart.passed, errors(apart)
    other = gpu_hosts.host("gpu-b", gpus(1), nccl="2.28.9")
    assert "Mismatched NCCL version detected" in errors(ran([host, other]))


def test_an_interface_that_is_not_there(gpu_hosts: Machine, ran: Callable[..., RunResult]) -> None:
    result = ran([gpu_hosts.host("gpu-a", gpus(2))], 2, env={"NCCL_SOCKET_IFNAME": "bond0"})
    assert "no socket interface found" in errors(result)


def test_a_torch_without_nccl_is_the_real_one(gpu_hosts: Machine, ran: Callable[..., RunResult]) -> None:
    result = ran([gpu_hosts.host("gpu-a", gpus(1), torch=Torch("cpu"))])
    assert not result.passed
    assert "NCCL" in errors(result) or "_nccl_version" in errors(result)


def test_a_torch_that_takes_long_to_import(gpu_hosts: Machine, ran: Callable[..., RunResult]) -> None:
    hosts = [gpu_hosts.host("gpu-a", gpus(1)), gpu_hosts.host("gpu-b", gpus(1), torch=Torch(import_seconds=1.5))]
    result = ran(hosts)
    times = [trace.times.get("imported", 0.0) for trace in result.ranks.values()]
    assert times[1] - times[0] > 1.0


def test_a_product_can_be_slow_on_one_gpu(gpu_hosts: Machine) -> None:
    host = gpu_hosts.host("gpu-a", (Gpu(), Gpu(faults=(Fault(at="compute", does="slow", seconds=0.2),))))
    text = (
        "import torch, json\n"
        "def took(i):\n"
        "    torch.cuda.set_device(i)\n"
        "    a, b = (torch.cuda.Event(enable_timing=True) for _ in 'ab')\n"
        "    x = torch.ones(8, 8, device=f'cuda:{i}')\n"
        "    a.record(); x @ x; b.record(); torch.cuda.synchronize()\n"
        "    return a.elapsed_time(b)\n"
        "print(json.dumps([took(0), took(1)]))"
    )
    quick, slow = json.loads(python(host, text))
    assert quick < 100
    assert slow > 200


def test_what_was_started_is_gone_when_the_session_ends(gpu_hosts: Machine, ran: Callable[..., RunResult]) -> None:
    host = gpu_hosts.host("gpu-a", (Gpu(), Gpu(faults=(Fault(at="init", does="hang"),))))
    result = ran([host], 2)
    assert not result.passed
    pids = [trace.details["start"]["pid"] for trace in result.ranks.values()]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
