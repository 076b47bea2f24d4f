"""What a scan of thousands of nodes sends and what the driver holds: ``python -m tests.simulate_ranks --nodes 4096``.

Each node's logs are written in memory (start, some steps, the end of a typical incident: one rank runs out of memory,
the others wait in a collective until the time-out), scanned by the real scanner and packed as they would travel. Parts
are merged in a tree as on a cluster; the last ones are given to a fresh process, whose peak memory is what the driver's
would be.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nccl_triage.diagnosis.verdict import diagnose_observations
from nccl_triage.engine import load
from nccl_triage.events import Observations, SourceInfo
from nccl_triage.execution.cluster import parcel
from nccl_triage.execution.cluster.tree import FAN
from nccl_triage.ingest.decode import LineReader
from nccl_triage.scan.scanner import Scanner

RANKS = 8
MB = 1e6
DUMP = """\
[rank{rank}]:[E{day} 10:30:0{digit}.{rank:06d} ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4711, OpType=ALLREDUCE, NumelIn=25165824, NumelOut=25165824, Timeout(ms)=600000) ran for 600{digit}50 milliseconds before timing out.
[rank{rank}]:[E{day} 10:30:0{digit}.{rank:06d} ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Exception (either an error or timeout) detected by watchdog at work: 4711, last enqueued NCCL work: 4712, last completed NCCL work: 4710.
[rank{rank}]:[E{day} 10:30:0{digit}.{rank:06d} ProcessGroupNCCL.cpp:630] [Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.
[rank{rank}]:[E{day} 10:30:0{digit}.{rank:06d} ProcessGroupNCCL.cpp:636] [Rank {rank}] To avoid data inconsistency, we are taking the entire process down.
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
            f"{nccl} Channel {channel:02d}/0 : {rank}[{local}] -> {(rank + 1) % world}[{(local + 1) % RANKS}] via P2P/CUMEM"
            for channel in range(8)
        ),
        f"{nccl} comm 0x{rank:x} rank {rank} nranks {world} cudaDev {local} nvmlDev {local} busId {local}1000 commId 0xabc - Init COMPLETE",
        *(f"[rank{rank}]: step {step}/10000 loss {2.5 - step / 100:.3f} grad_norm 1.2 lr 1e-4" for step in range(40)),
    ]
    end = MEMORY if rank == culprit else DUMP
    return "\n".join(lines) + "\n" + end.format(rank=rank, local=local, day="0302", digit=rank % 10)


def node(number: int, world: int, culprit: int, scanner: Scanner) -> Observations:
    """Return what a node finds in its logs."""
    host, total = f"gpu{number:04d}", Observations()
    for rank in range(number * RANKS, (number + 1) * RANKS):
        info = SourceInfo(f"{host}:/var/log/job/rank{rank}.log", rank=rank, host=host, layout="rank-file")
        stream = io.BytesIO(log_of(rank, world, host, culprit).encode())
        total.absorb(scanner.scan_blocks(LineReader(stream, info), info))
    return total


def simulate(nodes: int, folder: Path) -> dict[str, object]:
    """Scan and merge everything; the parts for the driver are written into the folder."""
    scanner, world = Scanner(load.load()), nodes * RANKS
    culprit = world * 2 // 3
    parts, sizes, seconds = [], [], []
    for number in range(nodes):
        parts.append(parcel.pack(node(number, world, culprit, scanner)))
        sizes.append(len(parts[-1]))
    levels = []
    while len(parts) > FAN:
        merged = []
        for start in range(0, len(parts), FAN):
            began, total = time.perf_counter(), Observations()
            for part in parts[start : start + FAN]:
                total.absorb(parcel.unpack(part))
            merged.append(parcel.pack(total))
            seconds.append(time.perf_counter() - began)
        levels.append(f"{len(merged)} parts of {max(map(len, merged)) / MB:.1f} MB, {max(seconds):.1f} s each")
        parts, seconds = merged, []
    for number, part in enumerate(parts):
        (folder / f"{number}.part").write_bytes(part)
    return {
        "nodes": nodes,
        "ranks": world,
        "culprit": culprit,
        "a node sends (kB)": round(statistics.median(sizes) / 1e3, 1),
        "all nodes send (MB)": round(sum(sizes) / MB, 1),
        "merges": levels,
        "the driver receives (MB)": round(sum(map(len, parts)) / MB, 1),
    }


def drive(folder: Path) -> dict[str, object]:
    """Take the parts and diagnose, as the driver does."""
    rules = load.load()
    floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began, total = time.perf_counter(), Observations()
    for path in sorted(folder.glob("*.part")):
        total.absorb(parcel.unpack(path.read_bytes()))
    merged = time.perf_counter()
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    diagnosis = diagnose_observations(total, rules)
    diagnosed = time.perf_counter()
    document = diagnosis.to_dict()
    first = document["diagnoses"][0] if document["diagnoses"] else {}
    return {
        "before (MB)": round(floor),
        "with all observations (MB)": round(held),
        "peak of the driver (MB)": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
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
