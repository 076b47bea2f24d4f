"""What every rank of a run needs to know, as the worker reads it: for agents and for files alike."""

from __future__ import annotations

from typing import Any

from nccl_triage.verify.model import Deadlines, Run


def spec_of(run: Run, limits: Deadlines, port: int, host: str) -> dict[str, Any]:
    """Return the spec of a run whose store is on ``port`` (0: rank 0 chooses) of ``run.store_address``, else of ``host``.

    Time-outs are in seconds. torch's are half of the parent's, so that a library that keeps its word reports first.
    """
    message = run.message
    return {
        "op": message.op,
        "numel": message.numel,
        "dtype": message.dtype,
        "root": message.root,
        "pair": list(message.pair),
        "world": run.world,
        "backend": run.backend,
        "device": run.device,
        "env": run.env,
        "iterations": run.iterations,
        "slots": [slot.number for slot in run.slots],
        "store": {"host": run.store_address or host, "port": port},
        "store_timeout": limits.store / 2,
        "timeout": run.timeout if run.timeout is not None else limits.first / 2,
        "faults": run.faults,
        "more": [{"op": part.op, "numel": part.numel, "dtype": part.dtype} for part in run.more],
    }
