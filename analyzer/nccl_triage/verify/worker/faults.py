"""Faults that a rank commits on purpose, to test the verifier; never part of a user's experiment.

``spec["faults"]`` maps a slot to a fault; the slot is the rank's place in the whole job, so that a fault stays with its
culprit when an experiment leaves other ranks out.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

#: What a fault of each name does.
MEANINGS = {
    "imports-late": "takes some seconds longer than the others to import torch",
    "cannot-import": "has no torch",
    "late": "reaches the collective some seconds after the others",
    "absent": "never reaches the collective",
    "never-joins": "never connects to the store",
    "leaves": "exits with code 0 before the collective",
    "raise": "raises a ValueError before the collective",
    "sigsegv": "reads address 0",
    "sigkill": "is killed by SIGKILL before the collective",
    "sigterm": "is killed by SIGTERM before the collective",
    "sigstop": "is stopped by SIGSTOP before the collective",
    "oom": "allocates more memory than its limit allows",
    "wrong-op": "calls a different collective than the others",
    "wrong-order": "calls two collectives in the opposite order",
    "wrong-size": "passes half of the elements",
    "wrong-dtype": "passes another dtype",
    "hidden-size": "passes half of the elements to the library, and says nothing of it",
    "hidden-dtype": "passes another dtype to the library, and says nothing of it",
    "skips": "leaves out its third collective",
    "leaves-midway": "exits with code 0 in place of its third collective",
    "slow": "sleeps before each timed iteration",
    "starved": "shares one core with programs that never rest",
}


class Fault:
    """What one rank does differently; the base class does nothing."""

    def __init__(self, name: str = "", seconds: float = 0.0) -> None:
        self.name = name
        self.seconds = seconds

    def at(self, stage: str) -> None:
        """Act at the end of a stage."""
        if stage == "start":
            self._import()
        if self.name == "never-joins" and stage == "store":
            time.sleep(3600)
        if self.name == "starved" and stage in ("compute", "entered"):
            _crowd()
        if stage != "entered":
            return
        if self.name == "late":
            time.sleep(self.seconds)
        elif self.name == "absent":
            time.sleep(3600)
        elif self.name == "leaves":
            os._exit(0)
        elif self.name == "raise":
            raise ValueError("reward function returned None for sample 1234")
        elif self.name == "sigsegv":
            import ctypes

            ctypes.string_at(0)
        elif self.name == "oom":
            _exhaust()
        elif self.name in ("sigkill", "sigterm", "sigstop"):
            os.kill(os.getpid(), getattr(signal, self.name.upper()))
            time.sleep(0.2)

    def _import(self) -> None:
        if self.name == "imports-late":
            time.sleep(self.seconds)
        elif self.name == "cannot-import":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

    def message(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Return op, elements and dtype of this rank's call."""
        own = {name: spec[name] for name in ("op", "numel", "dtype")}
        if self.name == "wrong-op":
            own["op"] = "BROADCAST" if own["op"] != "BROADCAST" else "ALLREDUCE"
        elif self.name == "wrong-size":
            own["numel"] = max(1, own["numel"] // 2)
        elif self.name == "wrong-dtype":
            own["dtype"] = "float64" if own["dtype"] != "float64" else "float32"
        return own

    def first(self, call: Any) -> None:
        """Issue a call out of order before the first collective, or change what the library gets from then on."""
        if self.name == "wrong-order":
            call.dist.barrier()
        if self.name in ("hidden-size", "hidden-dtype", "skips", "leaves-midway"):
            import torch.distributed as library

            self._issue, self._issued = library.all_reduce, 0
            setattr(library, "all_reduce", self._all_reduce)  # noqa: B010

    def _all_reduce(self, x: Any, **options: Any) -> Any:
        """Stand for the library's all_reduce."""
        self._issued += 1
        if self._issued == _THIRD and self.name == "leaves-midway":
            os._exit(0)
        if self._issued == _THIRD and self.name == "skips":
            return None
        if self.name == "hidden-size":
            x = x[: max(1, len(x) // 2)]
        elif self.name == "hidden-dtype":
            x = x.double() if str(x.dtype) != "torch.float64" else x.float()
        return self._issue(x, **options)

    def before(self, iteration: int) -> None:
        """Act before a timed iteration."""
        if self.name == "slow":
            time.sleep(self.seconds)


#: The collective that a rank leaves out, or in place of which it leaves.
_THIRD = 3
#: Programs that share the core of a rank that is starved.
_CROWD = 6


def _crowd() -> None:
    """Stay on one core, together with programs that compute without end; they die with this process."""
    from nccl_triage.hosts.probes.host import die_with_parent

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for _ in range(_CROWD):
        if os.fork() == 0:
            die_with_parent()
            while True:
                pass


def _exhaust() -> None:
    """Ask for more memory than the process may have, as a model that does not fit does."""
    import resource

    import torch

    limit = 1 << 30
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()  # noqa: SIM115, PTH123
    resource.setrlimit(resource.RLIMIT_AS, (used + limit, used + limit))
    torch.empty(4 * limit, dtype=torch.uint8)


def of(spec: dict[str, Any], rank: int) -> Fault:
    """Return the fault of a rank: none in any user's experiment. Raises ValueError for a name that no fault has."""
    slot = spec["slots"][rank] if "slots" in spec else rank
    found = spec.get("faults", {}).get(str(slot))
    if not found:
        return Fault()
    if found["name"] not in MEANINGS:  # a rank that does nothing wrong would prove something else
        raise ValueError(f"there is no fault named {found['name']!r}")
    return Fault(found["name"], float(found.get("seconds", 0.0)))
