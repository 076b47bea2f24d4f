from __future__ import annotations

from nccl_triage.api import diagnose

RANKS = 600


def joined(rank):
    return (
        f"gpu-node-{rank // 8:03d}:{2000 + rank}:{9000 + rank} [{rank % 8}] NCCL INFO ncclCommInitRank comm 0x55d0{rank:08x} "
        f"rank {rank} nranks {RANKS} cudaDev {rank % 8} nvmlDev {rank % 8} busId {rank % 8:x}000 commId 0x9a51c8d4 - Init COMPLETE"
    )


def waited(rank):
    return (
        f"[rank{rank}]:[E822 14:13:00.{rank:06d}093 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=8313, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) "
        f"ran for {600000 + rank} milliseconds before timing out."
    )


def timeline(tmp_path, lines):
    log = tmp_path / "trainer.log"
    log.write_text("\n".join(lines) + "\n", "utf-8")
    return diagnose(log).to_dict()["timeline"]


def test_the_failure_is_told_however_many_ranks_started(tmp_path):
    oom = "[rank7]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 7 has a total capacity of 79.15 GiB"
    events = timeline(tmp_path, [*map(joined, range(RANKS)), oom, *(waited(r) for r in range(RANKS) if r != 7)])
    assert len(events) <= 200
    assert (7, "root", RANKS + 1) in {(e["rank"], e["role"], e["line"]) for e in events}
    assert sum(e["role"] == "cascade" for e in events) >= 20
    progress = [e["rank"] for e in events if e["role"] == "progress"]
    assert 0 in progress
    assert RANKS - 1 in progress
    assert [e["order"] for e in events] == list(range(len(events)))
    assert [e["line"] for e in events] == sorted(e["line"] for e in events)


def test_few_events_are_all_told(tmp_path):
    events = timeline(tmp_path, [*map(joined, range(9)), *(waited(r) for r in range(8))])
    assert {e["rank"] for e in events if e["role"] == "progress"} == set(range(9))
    assert {e["rank"] for e in events if e["role"] == "cascade"} == set(range(8))
