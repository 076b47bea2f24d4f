"""Earlier failures are evidence: they support what the log shows, and never speak alone."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest

from nccl_triage import diagnose
from nccl_triage.document.diagnosis import Diagnosis
from nccl_triage.events import Observations
from nccl_triage.history import memory, store
from nccl_triage.history.memory import Memory
from nccl_triage.history.model import Incident
from nccl_triage.history.patience import TooSlow, within
from nccl_triage.render import FORMATS, render
from nccl_triage.resources import reports_dir

from .made import NOW, failed

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


def told(tmp_path: Path, text: str, incidents: Sequence[Incident]) -> tuple[Diagnosis, Diagnosis]:
    """Return the diagnosis of a log without and with a history."""
    log, path = tmp_path / "train.log", tmp_path / "history.sqlite"
    log.write_text(text)
    with store.writable(path) as history:
        for one in incidents:
            history.keep(one)
    return diagnose(log), diagnose(log, further=[Memory(path).recall])


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
    jsonschema.validate(document, json.loads((reports_dir() / "schema" / "report.schema.json").read_text("utf-8")))
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
    from nccl_triage.events import Context, Event
    from nccl_triage.history import recall

    earlier = [failed("gpu07", days=1, pci="3b:00", number=1), failed("gpu07", days=2, gpu=5, number=2)]

    def gpus(bdf: str, role: Literal["root", "context"]) -> list[str]:
        seen = Observations()
        seen.add(Event("nvidia-driver.xid_79", "a", 1, "Xid 79", Context(host="gpu07"), role, {"bdf": bdf}))
        return [event.fields["gpu"] for event in recall.recall(seen, earlier).events("history.gpu_failed_before")]

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
    assert within(60, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(60, lambda: 1 // 0)
    release = threading.Event()
    with pytest.raises(TooSlow):
        within(0.01, lambda: release.wait(60))
    release.set()


def test_the_moment_of_a_log_bounds_what_counts_as_earlier(tmp_path: Path) -> None:
    stamped = "".join(f"2020-01-10 10:00:0{n} {line}\n" for n, line in enumerate(AMBIGUOUS.splitlines()))
    _, with_ = told(tmp_path, stamped, [failed("gpu07", days=1), failed("gpu07", days=2)])
    assert "recurrence" not in with_.to_dict(), "what came years later was not before"
    assert NOW > 0
