"""Who failed how often: pure functions of incidents, and the lists that schedulers take."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from nccl_triage.history import exclude
from nccl_triage.history.recurrence import recurrences, worked_since

from .made import failed, healthy

INCIDENTS = [
    failed("gpu07", "gpu-hardware-fault", 1, number=1, pci="3b:00", rank=3),
    failed("gpu07", "network-ib-link-fault", 2, number=2, rank=11),
    failed("gpu07", "gpu-hardware-fault", 5, number=3, pci="3b:00", rank=0),
    failed("gpu08", "gpu-hardware-fault", 6, number=4, gpu=2, rank=3, status="possible"),
    failed("gpu09", "application-exception", 7, number=5, rank=3),
    failed(None, "rendezvous-failed", 8, number=6, rank=None),
    healthy(3, number=7),
    healthy(0.5, number=8),
]


def test_a_host_is_counted_once_an_incident_and_not_for_what_is_merely_possible() -> None:
    first, *others = recurrences(INCIDENTS, "host")
    assert (first.name, first.incidents) == ("gpu07", (1, 2, 3))
    assert first.causes == (("gpu-hardware-fault", 2), ("network-ib-link-fault", 1))
    assert [one.name for one in others] == ["gpu09"]
    assert first.says(14, "en") == "gpu07 failed 3 times in 14 days: gpu-hardware-fault 2, network-ib-link-fault 1"
    assert first.says(14, "zh").startswith("gpu07 在 14 天内失败 3 次")
    assert others[0].says(14, "en") == "gpu09 failed once in 14 days: application-exception"
    assert worked_since(INCIDENTS, first) == 1, "one of two healthy jobs ran after it failed"


def test_a_gpu_goes_by_its_place_on_the_bus_and_a_rank_by_its_number_on_any_host() -> None:
    assert [(one.name, one.times) for one in recurrences(INCIDENTS, "gpu")] == [("gpu07 GPU 3b:00", 2)]
    ranks = {one.name: one for one in recurrences(INCIDENTS, "rank")}
    assert ranks["rank 3"].hosts == ("gpu07", "gpu09")
    assert ranks["rank 3"].times == 2
    causes = {one.name: one.times for one in recurrences(INCIDENTS, "cause")}
    assert causes["gpu-hardware-fault"] == 2
    assert causes["rendezvous-failed"] == 1


def test_only_causes_that_are_asked_for_count() -> None:
    assert [one.times for one in recurrences(INCIDENTS, "host", {"network-ib-link-fault"})] == [1]
    assert recurrences(INCIDENTS, "host", set()) == []


@pytest.mark.parametrize(
    ("hosts", "listed"),
    [
        (["gpu03", "gpu07", "gpu08", "gpu09"], "gpu[03,07-09]"),
        (["gpu9", "gpu10", "gpu11", "gpu8"], "gpu[8-9,10-11]"),
        (["gpu08", "gpu8"], "gpu[8,08]"),
        (["login", "gpu1"], "gpu1,login"),
        (["rack2-gpu01.cluster.example", "rack2-gpu02.cluster.example", "gpu"], "gpu,rack2-gpu[01-02]"),
        (["n1", "n1.example", "n"], "n,n1"),
        ([], ""),
    ],
)
def test_slurm_node_lists(hosts: list[str], listed: str) -> None:
    assert exclude.slurm(hosts) == (listed, [])


HOSTILE = [
    "gpu1; rm -rf /",
    "$(reboot)",
    "`id`",
    "a\nb",
    "-x",
    "--exclude=a",
    "a b",
    "a,b",
    "a[1-9]",
    "*",
    "~",
    "",
    "a'",
    "主机",
    "a/../b",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_shell_could_obey_is_never_listed(name: str) -> None:
    assert exclude.plain([name, "gpu1"]) == (["gpu1"], [name])
    assert exclude.slurm([name, "gpu1"]) == ("gpu1", [name])


def test_a_list_means_to_a_shell_what_it_says() -> None:
    names, _ = exclude.plain([*HOSTILE, "gpu01", "gpu02.site.example", "10.0.0.7", "a_b-c"])
    listed, left = exclude.slurm([*HOSTILE, "gpu01", "gpu02.site.example", "10.0.0.7", "a_b-c"])
    assert left == sorted({*HOSTILE, "10.0.0.7"}, key=lambda name: (name == "10.0.0.7", name))
    for text in (" ".join(names), listed):
        said = subprocess.run(["sh", "-c", f"set -f; printf '%s ' {text}"], capture_output=True, text=True, check=True)
        assert said.stdout.split() == shlex.split(text) == text.split()


def test_a_hostfile_keeps_everything_but_the_bad_hosts() -> None:
    text = "# nodes of the run\ngpu01 slots=8\n gpu02.site.example slots=8 # old\r\nuser@gpu03:8\n\n10.0.0.7 slots=8\nGPU04\n10.0.0.70\ngpu1"
    kept, gone = exclude.hostfile(text, {"gpu02", "gpu03.site.example", "10.0.0.7", "gpu04"})
    assert kept == "# nodes of the run\ngpu01 slots=8\n\n10.0.0.70\ngpu1"
    assert gone == 4
    assert exclude.hostfile(text, set()) == (text, 0)
    assert exclude.names(kept) == ["gpu01", "10.0.0.70", "gpu1"]
    assert exclude.hostfile("gpu02.other.example\n", {"gpu02.site.example"})[1] == 0, "another domain"
