"""What a scan of thousands of nodes sends and what the driver holds: ``python -m tests.simulate_ranks --nodes 4096``.

The logs of 16 nodes are written in memory (start, some steps, the end of a typical incident: one rank runs out of memory,
the others wait in a collective until the time-out), scanned by the real scanner, merged, and packed as they would travel.
The other nodes' findings are copies of theirs with other ranks and hosts. All of them are given to a fresh process, which
takes them in and diagnoses; its peak memory is what the driver's would be.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nccl_triage import gc_tuning
from nccl_triage.document.diagnosis import diagnose_observations
from nccl_triage.engine import load
from nccl_triage.execution.cluster import codec
from nccl_triage.execution.cluster.cluster_scan import FAN
from nccl_triage.ingest.decode import LineReader
from nccl_triage.observations.store import Observations, SourceInfo
from nccl_triage.scan.scanner import Scanner

RANKS = 8
MB = 1e6
#: The first rank of the pattern: a number that nothing else in its logs looks like.
FIRST = 70_000
_RANK, _HOST = re.compile(r"70[01]\d\d"), re.compile(r"gpu(\d{4})")
DUMP = """\
[rank{rank}]:[E{day} 10:30:0{digit}.{digit}00000 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4711, OpType=ALLREDUCE, NumelIn=25165824, NumelOut=25165824, Timeout(ms)=600000) ran for 600{digit}50 milliseconds before timing out.
[rank{rank}]:[E{day} 10:30:0{digit}.{digit}00000 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Exception (either an error or timeout) detected by watchdog at work: 4711, last enqueued NCCL work: 4712, last completed NCCL work: 4710.
[rank{rank}]:[E{day} 10:30:0{digit}.{digit}00000 ProcessGroupNCCL.cpp:630] [Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.
[rank{rank}]:[E{day} 10:30:0{digit}.{digit}00000 ProcessGroupNCCL.cpp:636] [Rank {rank}] To avoid data inconsistency, we are taking the entire process down.
"""
MEMORY = """\
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/job/train.py", line 412, in <module>
[rank{rank}]:     main()
[rank{rank}]:   File "/job/train.py", line 377, in main
[rank{rank}]:     loss.backward()
[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU {local} has a total capacity of 79.11 GiB of which 1.20 GiB is free.
"""


def log_of(rank: int, world: int, host: str, culprit: int) -> str:
    """Return the log of one rank."""
    local, pid = rank % RANKS, 4000 + rank % RANKS
    nccl = f"{host}:{pid}:{pid} [{local}] NCCL INFO"
    lines = [
        f"{nccl} Bootstrap : Using eth0:10.{rank // RANKS // 250}.{rank // RANKS % 250}.5<0>",
        f"{nccl} NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.5<0>",
        f"{nccl} NCCL version 2.21.5+cuda12.4",
        f"{nccl} comm 0x{rank:x} rank {rank} nranks {world} cudaDev {local} nvmlDev {local} busId {local}1000 commId 0xabc - Init START",
        *(
            f"{nccl} Channel {channel:02d}/0 : {rank}[{local}] -> {rank + 1}[{(local + 1) % RANKS}] via P2P/CUMEM"
            for channel in range(8)
        ),
        f"{nccl} comm 0x{rank:x} rank {rank} nranks {world} cudaDev {local} nvmlDev {local} busId {local}1000 commId 0xabc - Init COMPLETE",
        *(f"[rank{rank}]: step {step}/10000 loss {2.5 - step / 100:.3f} grad_norm 1.2 lr 1e-4" for step in range(40)),
    ]
    end = MEMORY if rank == culprit else DUMP
    return "\n".join(lines) + "\n" + end.format(rank=rank, local=local, day="0302", digit=rank % 10)


def node(number: int, world: int, culprit: int, scanner: Scanner) -> Observations:
    """Return what a node of the pattern finds in its logs."""
    host, total = f"gpu{number:04d}", Observations()
    for rank in range(FIRST + number * RANKS, FIRST + (number + 1) * RANKS):
        info = SourceInfo(f"{host}:/var/log/job/rank{rank}.log", rank=rank, host=host, layout="rank-file")
        stream = io.BytesIO(log_of(rank, world, host, culprit).encode())
        total.absorb(scanner.scan_blocks(LineReader(stream, info), info))
    return total


def moved(item: Any, block: int) -> Any:
    """Return a copy in which ranks and hosts of the pattern are those of the ``block``-th 16 nodes."""
    if isinstance(item, str):
        text = _RANK.sub(lambda found: str(int(found[0]) - FIRST + block * FAN * RANKS), item)
        return _HOST.sub(lambda found: f"gpu{int(found[1]) + block * FAN:04d}", text)
    if isinstance(item, int):
        return item - FIRST + block * FAN * RANKS if FIRST <= item < FIRST + FAN * RANKS else item
    if isinstance(item, dict):
        return {moved(key, block): moved(value, block) for key, value in item.items()}
    if isinstance(item, list):
        return [moved(value, block) for value in item]
    if isinstance(item, tuple):
        values = [moved(value, block) for value in item]
        return type(item)(*values) if hasattr(item, "_fields") else tuple(values)
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return type(item)(**{one.name: moved(getattr(item, one.name), block) for one in dataclasses.fields(item)})
    return item


def simulate(nodes: int, folder: Path) -> dict[str, object]:
    """Write the parts for the driver into the folder: findings of 16 nodes each."""
    scanner, world, blocks = Scanner(load.load()), nodes * RANKS, nodes // FAN
    guilty = blocks * 2 // 3
    sound = [node(number, world, -1, scanner) for number in range(FAN)]
    broken = [node(number, world, FIRST + 5, scanner) for number in range(FAN)]
    sent = len(codec.pack(sound[0]))
    began = time.perf_counter()
    merged = [codec.pack(one) for one in sound]
    total = Observations()
    for part in merged:
        total.absorb(codec.unpack(part))
    part = codec.pack(total)
    first = time.perf_counter() - began
    other = Observations()
    for one in broken:
        other.absorb(one)
    size = 0
    for block in range(blocks):
        data = codec.pack(moved(other if block == guilty else total, block))
        (folder / f"{block:05d}.part").write_bytes(data)
        size += len(data)
    began, largest = time.perf_counter(), Observations()
    for path in sorted(folder.glob("*.part"))[:FAN]:
        largest.absorb(codec.unpack(path.read_bytes()))
    second_size = len(codec.pack(largest))
    return {
        "nodes": nodes,
        "ranks": world,
        "the culprit": guilty * FAN * RANKS + 5,
        "a node sends (kB)": round(sent / 1e3, 1),
        "all nodes send (MB)": round(sent * nodes / MB, 1),
        "a merge of 16 nodes": f"{len(part) / MB:.2f} MB, {first:.1f} s",
        "a merge of 256 nodes": f"{second_size / MB:.2f} MB, {time.perf_counter() - began:.1f} s",
        "the driver receives (MB)": round(second_size * max(1, blocks // FAN) / MB, 1),
    }


def peak() -> float:
    """Return the most memory that this process has held, in MB; of ru_maxrss a part is its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def drive(folder: Path) -> dict[str, object]:
    """Take the parts and diagnose, as the driver does."""
    gc_tuning.collect_rarely()
    rules = load.load()
    floor = peak()
    began, total = time.perf_counter(), Observations()
    for path in sorted(folder.glob("*.part")):
        total.absorb(codec.unpack(path.read_bytes()))
    merged = time.perf_counter()
    held = peak()
    diagnosis = diagnose_observations(total, rules)
    diagnosed = time.perf_counter()
    document = diagnosis.to_dict()
    first = document["diagnoses"][0] if document["diagnoses"] else {}
    return {
        "before (MB)": round(floor),
        "with all observations (MB)": round(held),
        "peak of the driver (MB)": round(peak()),
        "receiving (s)": round(merged - began, 1),
        "diagnosis (s)": round(diagnosed - merged, 1),
        "document (s)": round(time.perf_counter() - diagnosed, 1),
        "events": len(total.all_events()),
        "cause": first.get("cause"),
        "culprits": [culprit["rank"] for culprit in first.get("culprits", [])][:5],
        "document (MB)": round(len(json.dumps(document)) / MB, 1),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[16, 256, 4096])
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.drive:
        print(json.dumps(drive(arguments.drive)))
        return
    for nodes in arguments.nodes:
        with tempfile.TemporaryDirectory() as folder:
            figures = simulate(nodes, Path(folder))
            command = [sys.executable, "-m", "tests.simulate_ranks", "--drive", folder]
            figures |= json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        for name, value in figures.items():
            print(f"{name:32} {value}", flush=True)
        print()


if __name__ == "__main__":
    main()
