"""Commands that test a diagnosis on the job's own hosts."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from nccl_triage.document.verify_commands import (
    HOSTS,
    JobPlace,
    host_word,
    launcher_of,
    log_words,
    place_of,
    ready_commands,
    to_confirm,
)

TWO = JobPlace("a.log", ("gpu-a", "gpu-b"), ranks_per_host=4)


def lines(place: JobPlace, launcher: str) -> tuple[str, ...]:
    return next(found.lines for found in ready_commands(place) if found.launcher == launcher)


def document(**job: Any) -> dict[str, Any]:
    hosts = [{"name": name, "addresses": [], "ranks": [0]} for name in job.pop("hosts", ("gpu-a", "gpu-b"))]
    experiment = {"kind": "reach", "scope": job.pop("scope", "hosts")}
    culprits = [{"host": host} for host in job.pop("accused", ())]
    return {
        "inputs": [{"path": "job.log"}],
        "job": {"hosts": hosts, "env": {}, **job},
        "diagnoses": [{"cause": "x", "experiment": experiment, "culprits": culprits}],
    }


def test_every_launcher_has_its_command() -> None:
    assert lines(TWO, "ssh") == ("nccl-triage verify a.log --host gpu-a --host gpu-b",)
    assert lines(TWO, "ray") == ("nccl-triage verify a.log --launcher ray",)
    start, judge = lines(TWO, "slurm")
    assert start == (
        "nccl-triage verify a.log --launcher slurm --host gpu-a --host gpu-b --workdir nccl-triage-check && "
        "salloc --exclusive --nodes=2 --nodelist=gpu-a,gpu-b bash nccl-triage-check/run.sh"
    )
    assert judge == "nccl-triage verify --collect nccl-triage-check"
    write, first, second, judge = lines(TWO, "torchrun")
    assert "--launcher print" in write
    assert first == "HEAD=gpu-a NODE_RANK=0 bash nccl-triage-check/run.sh torchrun   # on gpu-a"
    assert second == "HEAD=gpu-a NODE_RANK=1 bash nccl-triage-check/run.sh torchrun   # on gpu-b"


@pytest.mark.parametrize(
    ("job", "order"),
    [
        ({}, ["ssh", "ray", "slurm", "torchrun"]),
        ({"launcher": "torchrun"}, ["ssh", "ray", "slurm", "torchrun"]),
        ({"launcher": "ray"}, ["ray", "ssh", "slurm", "torchrun"]),
        ({"scheduler": "slurm", "launcher": "ray"}, ["slurm", "ray", "ssh", "torchrun"]),
        ({"scheduler": "slurm", "launcher": "torchrun"}, ["slurm", "ssh", "ray", "torchrun"]),
        ({"scheduler": "kubernetes"}, ["kubectl", "ssh", "ray", "slurm", "torchrun"]),
        ({"scheduler": "pbs"}, ["mpirun", "ssh", "ray", "slurm", "torchrun"]),
        ({"scheduler": "none of these"}, ["ssh", "ray", "slurm", "torchrun"]),
    ],
)
def test_the_platform_of_the_log_comes_first(job: dict[str, str], order: list[str]) -> None:
    assert [found.launcher for found in ready_commands(place_of(document(**job)))] == order


def test_the_launcher_of_the_user_comes_first_and_one_that_was_tried_does_not_come_again() -> None:
    assert ready_commands(TWO, "slurm")[0].launcher == "slurm"
    assert "ssh" not in {found.launcher for found in ready_commands(TWO, None, "ssh")}
    assert [launcher_of("local", False), launcher_of("local", True), launcher_of("print", False)] == [
        "local", "ssh", "torchrun",
    ]  # fmt: skip
    assert launcher_of("ray", True) == "ray"


def test_the_address_of_the_ray_cluster_is_filled_in() -> None:
    place = place_of(document(launcher="ray", ray_address="10.0.0.1:6379"))
    assert ready_commands(place)[0].lines == ("nccl-triage verify job.log --launcher ray --ray-address 10.0.0.1:6379",)


def test_pods_are_reached_by_kubectl() -> None:
    told = document(hosts=("worker-0", "worker-1"), scheduler="kubernetes", env={"POD_NAMESPACE": "train"})
    (line,) = lines(place_of(told), "kubectl")
    assert shlex.split(line)[3:] == [
        "--host", "worker-0=kubectl exec -i worker-0 -n train --", "--host", "worker-1=kubectl exec -i worker-1 -n train --",
    ]  # fmt: skip


def test_the_nodes_of_a_slurm_job_are_looked_up_where_the_log_does_not_name_them() -> None:
    (start, _) = lines(place_of(document(hosts=(), scope="all", scheduler="slurm", id="4711")), "slurm")
    assert start.endswith(
        'salloc --exclusive --nodelist="$(sacct -nXP -j 4711 -o nodelist)" bash nccl-triage-check/run.sh'
    )
    unknown = next(found for found in ready_commands(JobPlace("a.log", unnamed=2)) if found.launcher == "slurm")
    assert "--nodes=2" in unknown.lines[0]
    assert unknown.names is not None
    assert "--nodelist" in unknown.names["en"]


def test_hosts_that_the_log_does_not_name_stay_words_in_capitals() -> None:
    assert place_of(document(hosts=("gpu-a",))).names == ("gpu-a", "OTHER_HOST")
    assert place_of(document(hosts=())).names == ("HOST1", "HOST2")
    assert place_of(document(hosts=(), scope="all")).names == ("HOST",)
    # More ranks than one host has room for.
    assert place_of(document(hosts=(), scope="all", world_size=32)).names == ("HOST1", "HOST2", "HOST3", "HOST4")
    (ssh,) = (found for found in ready_commands(place_of(document(hosts=("gpu-a",)))) if found.launcher == "ssh")
    assert ssh.names == {
        "en": "OTHER_HOST: a host of the job that the log does not name",
        "zh": "OTHER_HOST：日志中没有写出的作业主机",
    }


def test_whoever_fills_in_a_host_says_that_it_is_the_job_s() -> None:
    for hosts, vouched in ((), True), (("gpu-a",), True), (("gpu-a", "gpu-b"), False):
        found = ready_commands(place_of(document(hosts=hosts)))
        assert {"--job-hosts" in command.lines[0] for command in found} == {vouched}


def test_a_log_without_hosts_may_be_of_this_host() -> None:
    assert [found.launcher for found in ready_commands(place_of(document(hosts=(), scope="all")))][:2] == [
        "local",
        "ssh",
    ]
    slurm = place_of(document(hosts=(), scope="all", scheduler="slurm"))
    assert [found.launcher for found in ready_commands(slurm, "local")][:3] == ["slurm", "local", "ssh"]
    assert "local" not in {found.launcher for found in ready_commands(place_of(document(hosts=())))}


def test_an_experiment_inside_one_host_takes_the_accused_one() -> None:
    told = {"hosts": ("a", "b", "c"), "accused": ("c",)}
    assert place_of(document(scope="host", **told)).hosts == ("c", "a", "b")
    assert place_of(document(scope="hosts", **told)).hosts == ("a", "b", "c")


def test_of_many_hosts_a_command_names_some_and_says_so() -> None:
    many = JobPlace("a.log", tuple(f"n{index}" for index in range(HOSTS + 4)))
    ssh = ready_commands(many)[0]
    assert ssh.lines[0].count("--host ") == HOSTS
    assert ssh.names is not None
    assert f"{HOSTS} of the {HOSTS + 4} hosts" in ssh.names["en"]
    (start, _) = lines(many, "slurm")
    assert f"--nodes={HOSTS + 4}" in start
    assert "--host" not in start


@pytest.mark.parametrize(
    ("name", "addresses", "word"),
    [
        ("gpu-a", ["10.0.0.1"], "gpu-a"),
        ("gpu-a.cluster.example", [], "gpu-a.cluster.example"),
        ("gpu-a#2", [], "gpu-a"),
        ("localhost", ["127.0.0.1", "10.0.0.1"], "10.0.0.1"),
        ("$(reboot)", ["10.0.0.1"], "10.0.0.1"),
        ("-oProxyCommand=x", [], None),
        ("a b", ["; reboot"], None),
        ("fd00::1", [], "fd00::1"),
        ("", ["0.0.0.0"], None),
        ("x" * 300, [], None),
    ],
)
def test_only_what_can_be_a_host_is_one(name: str, addresses: list[str], word: str | None) -> None:
    assert host_word(name, addresses) == word


HOSTILE = "x; touch /tmp/owned #`id`$(id)'\"\n--host=evil"


def test_nothing_of_a_hostile_log_becomes_a_word_of_a_command() -> None:
    told = document(hosts=(HOSTILE, "gpu-b"), launcher="ray", scheduler="slurm", id=HOSTILE, ray_address=HOSTILE)
    told["job"]["env"] = {"POD_NAMESPACE": HOSTILE}
    told["inputs"] = [{"path": HOSTILE}]
    for found in (
        *ready_commands(place_of(told)),
        *ready_commands(place_of({**told, "job": {**told["job"], "scheduler": "kubernetes"}})),
    ):
        for line in found.lines:
            words = shlex.split(line, comments=True)
            assert "touch" not in words
            assert all(word == HOSTILE or HOSTILE not in word for word in words)
            assert "evil" not in line.replace(shlex.quote(HOSTILE), "")


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["a.log"], "a.log"),
        (["a b.log", "c.log"], "'a b.log' c.log"),
        (["-v"], "./-v"),
        (["logs/a", "logs/b", "logs/c", "logs/d"], "logs"),
        (["a", "b", "c", "d"], "LOG..."),
        (["/a", "b", "c", "d"], "LOG..."),
        (["<stdin>"], "LOG..."),
        (["-"], "LOG..."),
        ([], "LOG..."),
    ],
)
def test_the_input_is_named_where_it_has_names(paths: list[str], words: str) -> None:
    assert log_words(paths) == words


def test_what_was_read_instead_of_the_logs_is_named() -> None:
    assert (
        ready_commands(place_of(document(), ["report.json"]))[0].lines[0].startswith("nccl-triage verify report.json ")
    )


def test_what_is_advised_after_a_try_fits_the_job() -> None:
    assert [found["launcher"] for found in to_confirm(document(), tried="local")] == ["ssh", "torchrun"]
    assert [found["launcher"] for found in to_confirm(document(launcher="ray"), tried="ray")] == ["ssh", "torchrun"]
    first = to_confirm(document(hosts=(), scope="all"), tried="local")[0]
    assert (first["launcher"], first["commands"]) == ("ssh", ["nccl-triage verify job.log --host HOST --job-hosts"])
    assert first["names_zh"]


@pytest.mark.parametrize(
    "damaged", [{}, {"job": 3, "diagnoses": "x", "inputs": [3]}, {"job": {"hosts": [{"name": 3}], "world_size": "x"}}]
)
def test_a_damaged_document_has_commands(damaged: dict[str, Any]) -> None:
    assert all(found.lines for found in ready_commands(place_of(damaged)))
