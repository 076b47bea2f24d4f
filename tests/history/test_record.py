"""What is kept of a document, and by what its logs are known again."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import diagnose
from nccl_triage.history import incidents, record
from nccl_triage.parsers import times

from .made import NOW

XID = """2026-11-12 10:00:01 gpu07:1001:1001 [0] NCCL INFO NCCL version 2.21.5+cuda12.4
2026-11-12 10:00:11 gpu07:1001:1001 [0] NCCL INFO comm 0x55d0 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 3b000 commId 0xabc - Init COMPLETE
2026-11-12 10:00:11 gpu08:2001:2001 [0] NCCL INFO comm 0x55d0 rank 8 nranks 16 cudaDev 0 nvmlDev 0 busId 3b000 commId 0xabc - Init COMPLETE
2026-11-12 10:05:00 gpu07 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1001, name=python, GPU has fallen off the bus.
2026-11-12 10:05:31 [rank8]:[E ProcessGroupNCCL.cpp:616] [Rank 8] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=55, OpType=ALLREDUCE, NumelIn=1000, NumelOut=1000, Timeout(ms)=600000) ran for 600026 milliseconds before timing out.
"""


def test_the_incident_and_none_of_its_lines(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("2026-11-12 10:00:00 NCCL_SECRET_TOKEN=hunter2 NCCL_IB_HCA=mlx5_0\n" + XID)
    document = diagnose(log).to_dict()
    made = record.incident(document, NOW)
    assert (made.verdict, made.cause, made.status) == ("diagnosed", "gpu-hardware-fault", "established")
    assert made.dated
    assert times.show(made.happened).startswith("2026-11-12")
    assert set(made.hosts) == {"gpu07", "gpu08"}
    assert made.world_size == 16
    assert made.software["nccl"] == "2.21.5"
    assert made.culprits[0].pci == "3b:00"
    assert made.inputs[0].path == str(log)
    kept = json.dumps(asdict(made))
    for part in ("fallen off", "Watchdog", "hunter2", "mlx5_0", "NCCL INFO"):
        assert part in log.read_text()
        assert part not in kept


@pytest.mark.parametrize(
    ("change", "dated"),
    [
        ({}, True),
        ({"started": None, "first_fault": {"time": None}}, False),
        ({"started": "11-12 10:00:00", "first_fault": {"time": "11-12 10:00:00"}}, False),
        ({"started": "2099-01-01 00:00:00", "first_fault": {}}, False),
        ({"started": "99999-99-99", "first_fault": {}}, False),
    ],
)
def test_a_time_that_the_log_does_not_tell_is_that_of_the_diagnosis(
    tmp_path: Path, change: dict[str, Any], dated: bool
) -> None:
    (tmp_path / "train.log").write_text(XID)
    document = diagnose(tmp_path / "train.log").to_dict()
    document["incident"].update(change)
    document["timeline"] = []
    made = record.incident(document, NOW)
    assert made.dated is dated
    assert dated or made.happened == NOW


def test_absurd_documents_are_cut_to_what_a_row_holds(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(XID)
    document = diagnose(tmp_path / "train.log").to_dict()
    best = document["diagnoses"][0]
    best["culprits"] = [{**best["culprits"][0], "rank": 1 << 70, "host": "h" * 10_000, "pid": -1}] * 100
    document["job"]["hosts"] = [{"name": f"h{n}\udcff"} for n in range(5000)]
    document["inputs"] *= 1000
    made = record.incident(document, NOW)
    assert len(made.culprits) <= 16
    assert made.culprits[0].rank is None
    assert len(made.culprits[0].host or "") == 400
    assert made.host_count == 5000
    assert len(made.hosts) == 4096
    assert len(made.inputs) == 64
    json.dumps(asdict(made)).encode()


def of(path: Path | str, data: bytes | None = None) -> tuple[str, ...]:
    """Return the marks of one log, or of what comes through a pipe."""
    found = diagnose(path, stdin=None if data is None else io.BytesIO(data))
    (only,) = incidents.marks_of(found.case.observations).values()
    return only


def test_a_log_is_known_again_however_it_comes(tmp_path: Path) -> None:
    log, packed, grown, other = (tmp_path / name for name in ("a.log", "b.log.gz", "c.log", "d.log"))
    log.write_text(XID)
    packed.write_bytes(gzip.compress(XID.encode()))
    grown.write_text(XID + "".join(f"2026-11-12 11:00:00 [rank{n}] step {n}/9 loss 2.5\n" for n in range(300)))
    other.write_text(XID.replace("10:0", "12:0").replace("1001", "5001").replace("2001", "6001"))
    whole = of(log)
    assert len(whole) >= 4
    assert of(packed) == whole
    assert of("-", XID.encode()) == whole
    assert incidents.same_log(whole, of(grown))
    assert incidents.same_log(of("-", XID.encode()[:400]), whole), "its beginning"
    assert not incidents.same_log(whole, of(other)), "the same job again, at another time"


def test_of_lines_without_time_and_process_the_path_tells_runs_apart(tmp_path: Path) -> None:
    text = "step 1 loss 2.5\nstep 2 loss 2.4\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    one, two = tmp_path / "run1" / "train.log", tmp_path / "run2" / "train.log"
    for log in (one, two):
        log.parent.mkdir()
        log.write_text(text)
    assert of(one) == of(one)
    assert not incidents.same_log(of(one), of(two))


def test_jobs_are_the_same_when_most_of_their_logs_are() -> None:
    folder = [("a1", "a2"), ("b1", "b2"), ("c1",)]
    assert incidents.same_job(folder, [("b1", "b2", "b3")]), "one of its ranks alone"
    assert not incidents.same_job([("a1",), ("kern",)], [("z1",), ("kern",)]), "the kernel's log is that of many jobs"
    assert not incidents.same_job([], [])
    assert not incidents.same_job([()], [()])


def test_a_log_with_dates_has_the_date_of_its_last_event(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(XID)
    document = diagnose(tmp_path / "train.log").to_dict()
    document["incident"].update({"started": None, "first_fault": None})
    made = record.incident(document, NOW)
    assert made.dated
    assert times.show(made.happened).startswith("2026-11-12 10:")


def test_different_jobs_print_the_same_messages(tmp_path: Path) -> None:
    """Tracebacks carry no times: theirs is that of the line above."""
    rest = "Traceback (most recent call last):\n" + "".join(
        f'  File "/a/m{n}.py", line {n}, in f{n}\n    call()\nValueError: bad value {n}\n' for n in range(9)
    )
    first, second = (tmp_path / f"{name}.log" for name in "ab")
    for log, clock in ((first, "10:00:01"), (second, "15:20:44")):
        log.write_text(f"2026-11-12 {clock},100 INFO step 1/9 loss 2.5\n{rest}")
    assert incidents.same_log(of(first), of(first))
    assert not incidents.same_log(of(first), of(second))


def test_a_job_goes_by_its_name_its_id_and_its_command(tmp_path: Path) -> None:
    log = tmp_path / "slurm-4711.out"
    log.write_text(f"+ torchrun --nproc_per_node=8 train.py --seed 3\n{XID}")
    found = incidents.identity_of(diagnose(log).case.observations, "nightly")
    assert (found.name, found.id) == ("nightly", "4711")
    log.write_text(f"+ torchrun --nproc_per_node=8 train.py --seed 4\n{XID}")
    assert incidents.identity_of(diagnose(log).case.observations).command == found.command
    log.write_text(f"+ torchrun --nproc_per_node=8 evaluate.py --seed 4\n{XID}")
    assert incidents.identity_of(diagnose(log).case.observations).command != found.command
    assert found.is_other(None, "4712")
    assert found.is_other("weekly", None)
    assert not found.is_other(None, None)
