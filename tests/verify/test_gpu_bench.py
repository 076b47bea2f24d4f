"""The bench for the day on which there is a GPU runs, as far as a GPU that exists only in a file can tell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.verify.gpu_host import GpuHost, Machine, gpus
from tests.verify.gpu_host.hosts import MACHINE

pytestmark = pytest.mark.xdist_group("gpu-hosts")
ROOT = Path(__file__).parents[2]


def run(host: GpuHost, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(host.folder / "enter"), sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)


@pytest.fixture
def host(gpu_hosts: Machine, tmp_path: Path) -> GpuHost:
    path = f"{MACHINE}:{ROOT / 'analyzer'}:{ROOT}"
    return gpu_hosts.host("gpu-a", gpus(1), env={"PYTHONPATH": path, "TMPDIR": str(tmp_path)})


def test_the_first_groups_show_what_they_promise(host: GpuHost, tmp_path: Path) -> None:
    groups = "inventory,eager,transports,gates,events"
    done = run(host, "-m", "corpus.verifier.gpu", "--out", str(tmp_path / "out"), "--groups", groups, "--budget", "220")
    assert done.returncode == 0, done.stderr
    found = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json")}
    assert [gpu["index"] for gpu in found["inventory"]["answer"]["gpus"]] == [0]
    eager = {name: (entry["outcome"], entry["stage"]) for name, entry in found["eager"].items()}
    assert eager["healthy"] == ("passed", "end")
    # What fails in the bootstrap fails when the group is made; what fails in a collective, later.
    assert eager["no-interface"] == ("error", "group")
    assert eager["same-gpu"] == ("error", "group")
    assert eager["killed"][1] not in ("group", "end")
    assert found["transport"]["control"]["outcome"] == "passed"
    assert found["transport"]["control"]["transport"]["networks"] == ["Socket"]
    runs = [run["changed"] for run in found["gate"]["runs"]]
    assert runs[0] is not None
    assert None in runs
    assert found["events"]["exit"] == 0, found["events"]
    assert all(times["clock"] >= times["events"] for times in found["events"]["times"].values())
    assert (tmp_path / "out" / "results.tar.gz").exists()


def test_without_a_gpu_it_says_so(gpu_hosts: Machine, tmp_path: Path) -> None:
    path = f"{MACHINE}:{ROOT / 'analyzer'}:{ROOT}"
    none = gpu_hosts.host("login", env={"PYTHONPATH": path})
    done = run(none, "-m", "corpus.verifier.gpu", "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "no GPU" in done.stderr
