"""Record the dumps: ``python -m corpus.flight.record [FAULT ..]`` runs real Gloo processes and dumps each while it hangs.

The dumps are what torch's own ``_dump_fr_trace`` gives, as pickle and (of some sets) as JSON; only the folder of this
repository is cut from the paths of their frames. Needed: torch 2.13 or later, whose Gloo records collectives (sends
and receives it does not).
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from corpus.flight.faults import FAULTS, WORLD

HERE = Path(__file__).parent
SETS = HERE / "sets"
#: Seconds after which all ranks stand where they will stay, and until which every rank stays alive.
SETTLE, STAY = 2.0, 3.0
#: Sets that are written as JSON, and those whose files are named with a host.
AS_JSON, WITH_HOST = ("missing-1", "operation-3"), ("size-1", "missing-3")


def _name(case: str, rank: int) -> str:
    stem = f"fr-node-{rank // 2 + 7}_rank_{rank}" if case in WITH_HOST else f"nccl_trace_rank_{rank}"
    return f"{stem}.json" if case in AS_JSON else stem


def _neutral(data: bytes) -> bytes:
    """Return the dump with neutral paths; it is this process's own, so loading it is safe."""
    import sysconfig

    found = pickle.loads(data)
    library, own = sysconfig.get_path("purelib"), str(HERE.parent.parent)
    for entry in found["entries"]:
        for frame in entry.get("frames", []):
            path = frame["filename"].replace(library, "/opt/venv/lib/python3.11/site-packages")
            frame["filename"] = path.replace(own, "/workspace")
        entry["thread_id"] = "140000000000000"
    return pickle.dumps(found, protocol=2)


def _rank(case: str, fault: str, odd: int, rank: int, port: int) -> None:
    import importlib
    import threading

    import torch
    import torch.distributed as dist

    native = importlib.import_module("torch._C._distributed_c10d")

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD, timeout=timedelta(seconds=120))

    def dump() -> None:
        time.sleep(SETTLE)
        json_form = case in AS_JSON
        data: Any = native._dump_fr_trace_json() if json_form else _neutral(native._dump_fr_trace())
        target = SETS / case / _name(case, rank)
        target.write_bytes(data if isinstance(data, bytes) else data.encode())
        time.sleep(STAY)
        os._exit(0)

    threading.Thread(target=dump, daemon=True).start()
    try:
        FAULTS[fault][0](dist, torch, rank, odd)
    except RuntimeError as error:
        print(f"{case}: rank {rank}: {str(error)[:100]}", file=sys.stderr)
    time.sleep(3600)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _case(fault: str, odd: int) -> str:
    return fault if odd < 0 else f"{fault}-{odd}"


def record(fault: str, odd: int) -> None:
    """Record one set."""
    case = _case(fault, odd)
    (SETS / case).mkdir(parents=True, exist_ok=True)
    port = _free_port()
    children = []
    for rank in range(WORLD):
        child = os.fork()
        if child == 0:
            try:
                _rank(case, fault, odd, rank, port)
            finally:
                os._exit(1)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def culprits(fault: str, odd: int) -> list[int]:
    """Return who is in the wrong: in a circle everybody, or nobody in particular."""
    return list(range(WORLD)) if fault == "circle" else [odd] if odd >= 0 else []


def labels() -> list[dict[str, Any]]:
    """Return the label of every set that is there: what was done, not what the dumps suggest."""
    cases = [(fault, odd, expected) for fault, (_, odds, expected) in FAULTS.items() for odd in odds]
    return [
        {"id": case, "fault": fault, "culprits": culprits(fault, odd), "expected": expected}
        for fault, odd, expected in cases
        if (SETS / (case := _case(fault, odd))).is_dir()
    ]


def main(wanted: list[str]) -> None:
    """Record the faults that are named, or all."""
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
    import torch  # noqa: F401  (once: the ranks are forks)

    for fault, (_, odds, _) in FAULTS.items():
        for odd in odds if not wanted or fault in wanted else ():
            record(fault, odd)
            print(_case(fault, odd))
    (HERE / "sets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in labels()))


if __name__ == "__main__":
    main(sys.argv[1:])
