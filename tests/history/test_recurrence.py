"""Who failed how often: pure functions of incidents, and the lists that schedulers take."""

from __future__ import annotations

import shlex
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from nccl_triage import diagnose
from nccl_triage.document.diagnosis import Diagnosis
from nccl_triage.history import export, memory, store
from nccl_triage.history.incidents import Input, JobIdentity, KeptIncident
from nccl_triage.history.memory import Memory, TimedOutError, run_within
from nccl_triage.history.recurrence import recall, recurrences, worked_since
from nccl_triage.history.signatures import CAUSE
from nccl_triage.observations.event import Context, Event
from nccl_triage.observations.store import Observations, SourceInfo
from nccl_triage.render import FORMATS, render
from tests.document import fields
from tests.scan_helpers import undeclared

from .made import DAY, NOW, failed, healthy

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
    assert export.slurm_list(hosts) == (listed, [])


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
    assert export.plain([name, "gpu1"]) == (["gpu1"], [name])
    assert export.slurm_list([name, "gpu1"]) == ("gpu1", [name])


def test_a_list_means_to_a_shell_what_it_says() -> None:
    names, _ = export.plain([*HOSTILE, "gpu01", "gpu02.site.example", "10.0.0.7", "a_b-c"])
    listed, left = export.slurm_list([*HOSTILE, "gpu01", "gpu02.site.example", "10.0.0.7", "a_b-c"])
    assert left == sorted({*HOSTILE, "10.0.0.7"}, key=lambda name: (name == "10.0.0.7", name))
    for text in (" ".join(names), listed):
        said = subprocess.run(["sh", "-c", f"set -f; printf '%s ' {text}"], capture_output=True, text=True, check=True)
        assert said.stdout.split() == shlex.split(text) == text.split()


def test_a_hostfile_keeps_everything_but_the_bad_hosts() -> None:
    text = "# nodes of the run\ngpu01 slots=8\n gpu02.site.example slots=8 # old\r\nuser@gpu03:8\n\n10.0.0.7 slots=8\nGPU04\n10.0.0.70\ngpu1"
    kept, gone = export.hostfile(text, {"gpu02", "gpu03.site.example", "10.0.0.7", "gpu04"})
    assert kept == "# nodes of the run\ngpu01 slots=8\n\n10.0.0.70\ngpu1"
    assert gone == 4
    assert export.hostfile(text, set()) == (text, 0)
    assert export.names_in_hostfile(kept) == ["gpu01", "10.0.0.70", "gpu1"]
    assert export.hostfile("gpu02.other.example\n", {"gpu02.site.example"})[1] == 0, "another domain"


#: Two hosts, a time-out, and a weak sign of broken hardware on one of them.
AMBIGUOUS = """gpu07:1001:1001 [0] NCCL INFO comm 0x55d0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 3b000 commId 0xabc - Init COMPLETE
gpu08:2001:2001 [0] NCCL INFO comm 0x55d0 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 3b000 commId 0xabc - Init COMPLETE
[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=55, OpType=ALLREDUCE, NumelIn=1000, NumelOut=1000, Timeout(ms)=600000) ran for 600026 milliseconds before timing out.
  what():  CUDA error: unknown error
"""
HEALTHY = (
    "gpu07:1001:1001 [0] NCCL INFO comm 0x55d0 rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 3b000 commId 0xabc - Init COMPLETE\n"
    + "".join(f"[rank0]: step {n}/9 loss 2.{n}\n" for n in range(10))
    + "Training finished\n"
)


def told(tmp_path: Path, text: str, incidents: Sequence[KeptIncident]) -> tuple[Diagnosis, Diagnosis]:
    """Return the diagnosis of a log without and with a history."""
    log, path = tmp_path / "train.log", tmp_path / "history.sqlite"
    log.write_text(text)
    with store.writable(path) as history:
        for one in incidents:
            history.keep(one)
    with_ = diagnose(log, further=[Memory(path).recall])
    assert undeclared(with_.case.events) == []
    return diagnose(log), with_


def test_the_same_cause_before_is_said_and_changes_nothing(tmp_path: Path) -> None:
    earlier = [
        failed("gpu07", days=1),
        failed("gpu07", days=5),
        failed("gpu07", "straggler", days=9),
        failed("gpu07", days=20),
    ]
    without, with_ = told(tmp_path, AMBIGUOUS, earlier)
    assert same(without.to_dict(), with_.to_dict())
    document = with_.to_dict()
    (entry,) = document["recurrence"]
    assert entry["host"] == "gpu07"
    assert entry["times"] == 3, "that of twenty days ago is forgotten"
    assert entry["says"].startswith("gpu07 failed 3 times in the 14 days before: gpu-hardware-fault 2, straggler 1")
    assert "recurrence" not in without.to_dict()
    fields.check(document)
    for form in ("text", "html", "markdown"):
        assert "gpu07 failed 3 times" in render(document, form).decode(), form
        assert "gpu07 在此前 14 天内失败过 3 次" in render(document, form, lang="zh").decode(), form
    for form in FORMATS:
        render(document, form)


def test_what_failed_in_another_way_or_on_other_hosts_supports_nothing(tmp_path: Path) -> None:
    earlier = [
        failed("gpu09", days=1),
        failed("gpu07", days=2, status="possible"),
        failed("gpu07", "application-exception"),
    ]
    without, with_ = told(tmp_path, AMBIGUOUS, earlier)
    assert [(c.weighed.cause.id, c.weighed.score) for c in without.candidates] == [
        (c.weighed.cause.id, c.weighed.score) for c in with_.candidates
    ]
    assert "recurrence" not in with_.to_dict(), "a program that raised is not the host's fault"


def same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    volatile = ("timing", "recurrence")
    return {k: v for k, v in one.items() if k not in volatile} == {k: v for k, v in two.items() if k not in volatile}


def test_it_makes_no_failure_of_a_healthy_log_and_no_cause_of_an_unknown_failure(tmp_path: Path) -> None:
    earlier = [failed(host, days=days, gpu=0) for days in range(1, 14) for host in ("gpu07", "gpu08")]
    without, with_ = told(tmp_path, HEALTHY, earlier)
    assert without.verdict == "healthy"
    assert same(without.to_dict(), with_.to_dict())
    unknown = HEALTHY.replace(
        "Training finished",
        "[rank0]:[E ProcessGroupNCCL.cpp:1282] [Rank 0] Some work never ended, aborting the process",
    )
    (tmp_path / "second").mkdir()
    without, with_ = told(tmp_path / "second", unknown, earlier)
    assert without.verdict == with_.verdict != "diagnosed"
    assert same(without.to_dict(), with_.to_dict())


def test_a_decisive_line_stands_whatever_was_before(tmp_path: Path) -> None:
    text = (
        AMBIGUOUS
        + "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.2 GiB is free.\n"
    )
    without, with_ = told(tmp_path, text, [failed("gpu08", days=days) for days in range(1, 14)])
    assert without.candidates[0].weighed.cause.id == with_.candidates[0].weighed.cause.id == "gpu-out-of-memory"


def test_a_log_does_not_support_itself(tmp_path: Path) -> None:
    log, path = tmp_path / "train.log", tmp_path / "history.sqlite"
    log.write_text(AMBIGUOUS + "gpu07 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1001, GPU has fallen off the bus.\n")
    for _ in range(3):
        run = Memory(path)
        found = diagnose(log, further=[run.recall])
        document = found.to_dict()
        run.keep(document)
        assert document["diagnoses"][0]["cause"] == "gpu-hardware-fault"
        assert "recurrence" not in document
    with store.readable(path) or pytest.fail("it is there") as history:
        assert len(history.incidents()) == 1


def test_a_gpu_is_told_of_where_a_line_of_this_failure_names_it() -> None:
    from nccl_triage.history import recurrence
    from nccl_triage.observations.event import Context, Event

    earlier = [failed("gpu07", days=1, pci="3b:00", number=1), failed("gpu07", days=2, gpu=5, number=2)]

    def gpus(bdf: str, role: Literal["root", "context"]) -> list[str]:
        seen = Observations()
        seen.add(Event("nvidia-driver.xid_79", "a", 1, "Xid 79", Context(host="gpu07"), role, {"bdf": bdf}))
        return [event.fields["gpu"] for event in recurrence.recall(seen, earlier).events("history.gpu_failed_before")]

    assert gpus("0000:3B:00", "root") == ["gpu07 GPU 3b:00"]
    assert gpus("0000:3b:00.0", "root") == ["gpu07 GPU 3b:00"]
    assert gpus("0000:5e:00", "root") == []
    assert gpus("0000:3b:00", "context") == []


def test_what_does_not_answer_is_not_waited_for_and_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "train.log"
    log.write_text(AMBIGUOUS)
    release, said = threading.Event(), list[str]()
    monkeypatch.setattr(memory, "ASK", 0.05)
    monkeypatch.setattr(memory, "KEEP", 0.05)
    monkeypatch.setattr(store, "_is_there", lambda path: release.wait(60))
    run = Memory(
        tmp_path / "history.sqlite", lambda template, **values: said.append(template.format(why=values["why"]["en"]))
    )
    started = time.monotonic()
    document = diagnose(log, further=[run.recall]).to_dict()
    run.keep(document)
    release.set()
    assert time.monotonic() - started < 30
    assert document["verdict"] == diagnose(log).verdict
    assert said == ["this diagnosis is not kept: the history does not answer"]


def test_work_is_waited_for_only_so_long_and_its_errors_are_ours() -> None:
    assert run_within(60, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        run_within(60, lambda: 1 // 0)
    release = threading.Event()
    with pytest.raises(TimedOutError):
        run_within(0.01, lambda: release.wait(60))
    release.set()


def test_the_moment_of_a_log_bounds_what_counts_as_earlier(tmp_path: Path) -> None:
    stamped = "".join(f"2020-01-10 10:00:0{n} {line}\n" for n, line in enumerate(AMBIGUOUS.splitlines()))
    _, with_ = told(tmp_path, stamped, [failed("gpu07", days=1), failed("gpu07", days=2)])
    assert "recurrence" not in with_.to_dict(), "what came years later was not before"
    assert NOW > 0


def test_jobs_with_like_paths_and_other_commands_are_not_the_same(tmp_path: Path) -> None:
    """``runs/exp1.log`` and ``runs/exp2.log`` differ in a number alone; so do the logs of one job that is run each night."""
    log = str(tmp_path / "exp7.log")
    earlier = failed(inputs=(Input(str(tmp_path / "exp6.log")),))
    observed = Observations()
    observed.add_source(SourceInfo(log))

    def counted(mine: JobIdentity, **known: str) -> int:
        found = recall(observed, [replace(earlier, **known)], mine)
        return found.count(CAUSE)

    assert counted(JobIdentity(command="aa"), command="aa") == 1
    assert counted(JobIdentity(command="aa")) == 1, "the earlier log does not show its command"
    assert counted(JobIdentity(command="aa"), command="bb") == 0
    assert counted(JobIdentity("nightly", command="aa"), job="nightly", command="bb") == 1
    assert counted(JobIdentity("nightly", command="aa"), job="weekly", command="aa") == 0


def test_what_ran_at_the_same_time_was_no_earlier_run() -> None:
    """The other tasks of an array fail at once; each has a log of nearly the same name."""
    started = NOW - 3 * DAY
    observed = Observations()
    observed.add_source(SourceInfo("/logs/exp7.log"))
    observed.add(Event("training.step", "/logs/exp7.log", 1, "step 1", Context(time=started)))
    beside, before = (failed(days=days, inputs=(Input("/logs/exp6.log"),)) for days in (2.9, 3.1))
    assert recall(observed, [beside]).count(CAUSE) == 0
    assert recall(observed, [before]).count(CAUSE) == 1
