"""Reading that ends before its time: what was read until then is the result, and it says so."""

from __future__ import annotations

import gzip
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import diagnose, interrupts
from nccl_triage.execution.engines import LocalEngine
from nccl_triage.render import FORMATS, render
from nccl_triage.stopping import ReadingStop, Stop

LINE = b"[rank%d]: step 3/20 loss 5.1 " + random.Random(1).randbytes(400).hex().encode() + b"\n"
OOM = b"[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 79.15 GiB of which 141.25 MiB is free.\n"
TIMEOUT = b"[rank%d]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank %d] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=15734, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600037 milliseconds before timing out.\n"


class After:
    """Progress that asks for the end once so many bytes have been read."""

    def __init__(self, size: int) -> None:
        self.stop, self._size = ReadingStop(), size

    def __call__(self, done: int, of: int | None) -> None:
        if done >= self._size:
            self.stop.ask(signal.SIGINT)


def partial(paths: list[Path], after: int) -> dict[str, Any]:
    progress = After(after)
    with LocalEngine(stop=progress.stop) as place:
        return diagnose(paths, engine=place, progress=progress).to_dict()


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"rank{rank}.log" for rank in range(4)]
    for rank, path in enumerate(paths):
        path.write_bytes(LINE % rank * 2000 + (OOM if not rank else TIMEOUT % (rank, rank)))
    return paths


def test_what_was_read_is_diagnosed_and_nobody_is_called_silent(logs: list[Path]) -> None:
    whole = diagnose(logs).to_dict()
    assert whole["diagnoses"][0]["status"] == "established"
    assert "interrupted" not in whole
    size = logs[0].stat().st_size
    found = partial(logs, size)
    assert found["interrupted"] == {
        "signal": "SIGINT", "bytes_read": size, "bytes": sum(path.stat().st_size for path in logs), "files_read": 1,
        "files": 4,
    }  # fmt: skip
    assert [one.get("interrupted") for one in found["inputs"]] == [None, True, True, True]
    assert found["inputs"][0]["lines"] == 2001
    assert (found["diagnoses"][0]["cause"], found["diagnoses"][0]["status"]) == ("gpu-out-of-memory", "supported")
    assert "missing" not in {rank["state"] for rank in found["job"]["ranks"]}
    assert "Reading was interrupted by SIGINT" in found["notes"][0]
    for name in FORMATS:
        assert b"PARTIAL: reading was interrupted after" in render(found, name, lang="en"), name


def test_what_is_only_begun_is_neither_healthy_nor_damaged(tmp_path: Path) -> None:
    path = tmp_path / "job.log.gz"
    lines = b"".join(
        b"step %d/9000 loss 5.1 %s\n" % (n, random.Random(n).randbytes(90).hex().encode()) for n in range(9000)
    )
    path.write_bytes(gzip.compress(lines + b"training finished\n"))
    assert diagnose(path).to_dict()["verdict"] == "healthy"
    found = partial([path], 300_000)
    assert 0 < found["interrupted"]["bytes_read"] < path.stat().st_size
    assert found["inputs"][0]["problems"] == []
    assert found["verdict"] == "unknown"
    assert found["headline"].endswith("No failure in what was read.")


def test_the_second_signal_ends_at_once() -> None:
    stop = Stop()
    stop(signal.SIGTERM, None)
    assert stop.asked == signal.SIGTERM
    with pytest.raises(interrupts.Ended) as ended:
        stop(signal.SIGINT, None)
    assert interrupts.code_of(ended.value) == 130


def test_a_call_that_waits_is_given_up_and_others_come_to_their_end() -> None:
    stop = ReadingStop()

    def waits(number: int) -> str:
        signal.raise_signal(number)
        raise AssertionError("went on")

    with stop.listening():
        assert stop.call(str, 5) == ("5", False)
        signal.raise_signal(signal.SIGTERM)  # outside of a call: it is only remembered
        assert stop.call(str, 5) == (None, True)
    other = ReadingStop()
    with other.listening():
        assert other.call(waits, signal.SIGINT) == (None, True)
