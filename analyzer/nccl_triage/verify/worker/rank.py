"""One rank of an experiment: joins, runs the collective, checks every element, measures the time, and reports.

``torch.distributed`` is wrapped to note each call. The parent compares the notes of all ranks, as torch's own
ProcessGroupWrapper compares fingerprints: a rank whose call differs is found even where the library only hangs or aborts.
"""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from . import faults
from .ops import Prepared, operation
from .payload import Call
from .progress import ProgressMarks

_KEPT = 20


def entries(torch: Any) -> list[dict[str, Any]]:
    """Return the last collectives that this rank issued, oldest first; empty where nothing is recorded."""
    c10d = getattr(torch._C, "_distributed_c10d", None)
    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json"):
        dump = getattr(c10d, name, None)
        if dump is None:
            continue
        try:
            found = json.loads(dump(includeCollectives=True, onlyActive=False)).get("entries", [])
        except Exception:  # a recorder that fails must not end the experiment
            continue
        if found:
            return [_short(entry) for entry in found[-_KEPT:]]
    return []


def _short(entry: dict[str, Any]) -> dict[str, Any]:
    kept = ("collective_seq_id", "p2p_seq_id", "profiling_name", "input_sizes", "output_sizes", "input_dtypes", "state")
    return {name: entry[name] for name in kept if name in entry}


#: Calls that move no data of the experiment.
_QUIET = {"get_rank", "get_world_size", "is_initialized", "isend", "irecv"}
#: Newer and older names of one call: ranks may have different releases of torch.
_SAME = {
    "all_gather_single": "all_gather_into_tensor",
    "_all_gather_base": "all_gather_into_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
}
#: Calls whose first argument is the output: what the log counts, and what is compared, is the input.
_OUTPUT_FIRST = {
    "all_gather",
    "all_gather_into_tensor",
    "allgather_into_tensor_coalesced",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all",
    "all_to_all_single",
}


def _shape(value: Any) -> list[Any] | None:
    """Return [dtype, elements] of a tensor, of a list of tensors, or of the first of several transfers."""
    if hasattr(value, "numel") and hasattr(value, "dtype"):
        return [str(value.dtype).replace("torch.", ""), int(value.numel())]
    if isinstance(value, (list, tuple)) and value:
        if hasattr(value[0], "numel"):
            return [str(value[0].dtype).replace("torch.", ""), sum(int(item.numel()) for item in value)]
        return _shape(getattr(value[0], "tensor", None))  # a P2POp
    return None


class Window:
    """Wraps ``torch.distributed`` and passes the name and message of every call to ``note``."""

    def __init__(self, dist: Any, note: Callable[[dict[str, Any]], None]) -> None:
        self._dist = dist
        self._note = note
        self._count = 0

    @property
    def distributed_c10d(self) -> Any:
        """The module of that name, as far as operations use it: the group, whose calls are noted, too."""
        group = self._dist.distributed_c10d._get_default_group()
        return SimpleNamespace(_get_default_group=lambda: Window(group, self._note))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._dist, name)
        call = _SAME.get(name, name)
        if not callable(found) or isinstance(found, type) or call.startswith("_") or call in _QUIET:
            return found

        def noted(*args: Any, **kwargs: Any) -> Any:
            self._count += 1
            given = [*args[call in _OUTPUT_FIRST :], *kwargs.values()]
            message = next((shape for value in given if (shape := _shape(value))), None)
            self._note({"call": call, "message": message, "count": self._count})
            return found(*args, **kwargs)

        return noted


def preload() -> str:
    """Import torch.distributed and what its first use imports; returns torch's version."""
    import torch
    import torch.distributed
    import torch.distributed.distributed_c10d

    from . import (
        progress,  # noqa: F401
    )

    torch.set_num_threads(1)
    version: str = torch.__version__
    return version


#: Characters of an error's text that are kept.
TEXT = 1500
#: Timed iterations end early when they have taken this long, in seconds.
TIMED = 8.0
#: Timed iterations of each further collective.
PART_ITERATIONS = 3


def _set_up(spec: dict[str, Any]) -> None:
    os.environ.update({name: str(value) for name, value in spec.get("env", {}).items()})
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # torch would write the flight recorder's dumps into the user's home; the parent asks for them over the pipe.
    if not {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"} & set(os.environ):
        os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "0"


def _device(torch: Any, spec: dict[str, Any], marks: ProgressMarks) -> Any:
    if spec.get("device", "cpu") == "cpu":
        marks.say("device", device="cpu")
        return torch.device("cpu")
    index = int(spec.get("gpu", spec["local_rank"])) % max(1, torch.cuda.device_count())
    torch.cuda.set_device(index)
    about = torch.cuda.get_device_properties(index)
    free, whole = torch.cuda.mem_get_info(index)
    bus = ":".join(
        f"{getattr(about, name):0{width}x}"
        for name, width in (("pci_domain_id", 4), ("pci_bus_id", 2), ("pci_device_id", 2))
        if hasattr(about, name)
    )
    marks.say("device", device="cuda", index=index, name=about.name, bus=bus, free=free, memory=whole)
    return torch.device("cuda", index)


def _store(dist: Any, spec: dict[str, Any], rank: int) -> Any:
    limit = timedelta(seconds=float(spec["store_timeout"]))
    where = spec["store"]
    store = dist.TCPStore(where["host"], int(where["port"]), spec["world"], rank == 0, limit, True)
    return dist.PrefixStore("verify", store)


def _all_joined(store: Any, world: int, limit: timedelta) -> None:
    """Wait until all ranks have made the group, so that a rank that leaves later does not look like a failed group."""
    if store.add("joined", 1) == world:
        store.set("all-joined", "1")
    store.wait(["all-joined"], limit)


def _synchronize(torch: Any, device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _together(call: Call, prepared: Prepared, iteration: int, fault: faults.Fault) -> tuple[float, int]:
    """Run an iteration that all ranks begin together; returns its seconds and the wrong elements."""
    issue, count_wrong = prepared
    call.dist.barrier()
    _synchronize(call.torch, call.device)
    fault.before(iteration)
    started = time.perf_counter()
    issue(iteration)
    _synchronize(call.torch, call.device)
    return time.perf_counter() - started, count_wrong(iteration)


def _measure(
    call: Call, spec: dict[str, Any], prepared: Prepared, marks: ProgressMarks, fault: faults.Fault
) -> dict[str, Any]:
    """Return the outcome of the timed iterations: wrong elements and seconds each."""
    wrong, seconds = 0, []
    begun = time.monotonic()
    for iteration in range(1, int(spec["iterations"]) + 1):
        took, bad = _together(call, prepared, iteration, fault)
        seconds.append(took)
        wrong += bad
        if iteration % 20 == 0:
            marks.say("iteration", done=iteration)
        # Every rank must leave the loop at the same iteration: rank 0 decides and tells.
        if iteration >= 3 and _enough(call, time.monotonic() - begun):
            break
    return {"wrong": wrong, "seconds": [round(value, 7) for value in seconds], "median": statistics.median(seconds)}


def _part(call: Call, message: dict[str, Any], marks: ProgressMarks) -> None:
    """Run one further collective in the same group: once to warm up and check, then timed."""
    own = replace(call, numel=int(message["numel"]), dtype=getattr(call.torch, message["dtype"]))
    prepared = operation(message["op"]).prepare(own)
    marks.say("call", call=operation(message["op"]).calls, message=[message["dtype"], own.numel], part=True)
    rounds = [_together(call, prepared, iteration, faults.Fault()) for iteration in range(1 + PART_ITERATIONS)]
    median = statistics.median(took for took, _ in rounds[1:])
    marks.say("part", **message, wrong=sum(bad for _, bad in rounds), median=median)


def _enough(call: Call, elapsed: float) -> bool:
    flag = call.torch.tensor([1.0 if elapsed > TIMED else 0.0], device=call.device)
    call.dist.broadcast(flag, src=0)
    return bool(flag.item())


def _listen(control: int, marks: ProgressMarks, torch: Any) -> None:
    """Answer the parent's request for the flight recorder while the main thread may be stuck in a collective."""

    def loop() -> None:
        while os.read(control, 1):
            marks.say("flight", entries=entries(torch))

    threading.Thread(target=loop, daemon=True).start()


def _cut(text: str) -> str:
    return text if len(text) <= TEXT else f"{text[: TEXT // 2]} ... {text[-TEXT // 2 :]}"


def _import(spec: dict[str, Any], marks: ProgressMarks) -> tuple[Any, Any]:
    """Return torch and torch.distributed."""
    import torch
    import torch.distributed as dist

    nccl = None
    if spec["backend"] == "nccl":
        nccl = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    marks.say("imported", torch=torch.__version__, cuda=torch.version.cuda, nccl=nccl)
    return torch, dist


def _join(dist: Any, spec: dict[str, Any], rank: int, marks: ProgressMarks, fault: faults.Fault) -> None:
    """Meet the other ranks at the store and make the group."""
    fault.at("store")
    store = _store(dist, spec, rank)
    marks.say("store")
    fault.at("group")
    limit = timedelta(seconds=float(spec["timeout"]))
    dist.init_process_group(spec["backend"], store=store, rank=rank, world_size=spec["world"], timeout=limit)
    _all_joined(store, spec["world"], limit)
    marks.say("group")


def _enter(call: Call, prepared: Prepared, op: str, marks: ProgressMarks, fault: faults.Fault) -> int:
    """Issue the first collective, which nothing but the group has preceded; returns the wrong elements."""
    fault.at("entered")
    marks.say("entered", op=op)
    fault.first(call)
    issue, count_wrong = prepared
    started = time.perf_counter()
    issue(0)
    _synchronize(call.torch, call.device)
    wrong = count_wrong(0)
    marks.say("warm", seconds=round(time.perf_counter() - started, 6), wrong=wrong)
    return wrong


def _work(spec: dict[str, Any], rank: int, control: int, marks: ProgressMarks, fault: faults.Fault) -> None:
    """Do everything that the spec asks of a rank, with a mark after each stage."""
    fault.at("start")
    torch, dist = _import(spec, marks)
    _listen(control, marks, torch)
    device = _device(torch, spec, marks)
    _join(dist, spec, rank, marks, fault)
    own = fault.message(spec)
    call = Call(
        torch=torch,
        dist=Window(dist, lambda note: marks.say("call", **note)),
        rank=rank,
        world=spec["world"],
        numel=int(own["numel"]),
        dtype=getattr(torch, own["dtype"]),
        device=device,
        root=int(spec.get("root", 0)),
        pair=tuple(spec.get("pair", (0, 1))),
    )
    prepared = operation(own["op"]).prepare(call)
    wrong = _enter(call, prepared, own["op"], marks, fault)
    call.dist = dist  # the calls of the timed iterations are all alike: nothing to note
    outcome = _measure(call, spec, prepared, marks, fault)
    outcome["wrong"] += wrong
    for part in spec.get("more", ()):
        _part(call, part, marks)
    # Data that cannot be compared with ranks that still work: leave together.
    dist.barrier()
    marks.say("done", **outcome)
    dist.destroy_process_group()


def run(spec: dict[str, Any], rank: int, out: int, control: int) -> int:
    """Run one rank to its end and return the exit code: 0 for done, 3 for an error that was reported."""
    _set_up(spec)
    marks = ProgressMarks(out, rank)
    marks.say("start", pid=os.getpid())
    fault = faults.of(spec, rank)
    try:
        _work(spec, rank, control, marks, fault)
    except BaseException as error:  # whatever happened is the result of the experiment
        # As any training program does: the log is read by the same parsers as the user's.
        traceback.print_exc()
        marks.say("error", type=type(error).__name__, text=_cut(str(error)))
        return 3
    return 0
