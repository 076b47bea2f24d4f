"""One rank of an experiment: join, run the collective, check every element, time it, say so."""

from __future__ import annotations

import os
import statistics
import threading
import time
import traceback
from dataclasses import replace
from datetime import timedelta
from typing import Any

from . import faults, flight
from .calls import Window
from .marks import Marks
from .ops import Prepared, operation
from .payload import Call

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


def _device(torch: Any, spec: dict[str, Any], marks: Marks) -> Any:
    if spec.get("device", "cpu") == "cpu":
        marks.say("device", device="cpu")
        return torch.device("cpu")
    index = int(spec["local_rank"]) % max(1, torch.cuda.device_count())
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
    """Wait until the group stands on all ranks: one that leaves after it must not look like a group that never stood."""
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


def _measure(call: Call, spec: dict[str, Any], prepared: Prepared, marks: Marks, fault: faults.Fault) -> dict[str, Any]:
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


def _part(call: Call, message: dict[str, Any], marks: Marks) -> None:
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


def _listen(control: int, marks: Marks, torch: Any) -> None:
    """Answer the parent's wish for the flight recorder while the main thread may be stuck in a collective."""

    def loop() -> None:
        while os.read(control, 1):
            marks.say("flight", entries=flight.entries(torch))

    threading.Thread(target=loop, daemon=True).start()


def _cut(text: str) -> str:
    return text if len(text) <= TEXT else f"{text[: TEXT // 2]} ... {text[-TEXT // 2 :]}"


def _import(spec: dict[str, Any], marks: Marks) -> tuple[Any, Any]:
    """Return torch and torch.distributed."""
    import torch
    import torch.distributed as dist

    nccl = None
    if spec["backend"] == "nccl":
        nccl = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    marks.say("imported", torch=torch.__version__, cuda=torch.version.cuda, nccl=nccl)
    return torch, dist


def _join(dist: Any, spec: dict[str, Any], rank: int, marks: Marks, fault: faults.Fault) -> None:
    """Meet the other ranks at the store and make the group."""
    fault.at("store")
    store = _store(dist, spec, rank)
    marks.say("store")
    fault.at("group")
    limit = timedelta(seconds=float(spec["timeout"]))
    dist.init_process_group(spec["backend"], store=store, rank=rank, world_size=spec["world"], timeout=limit)
    _all_joined(store, spec["world"], limit)
    marks.say("group")


def _enter(call: Call, prepared: Prepared, op: str, marks: Marks, fault: faults.Fault) -> int:
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


def _work(spec: dict[str, Any], rank: int, control: int, marks: Marks, fault: faults.Fault) -> None:
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
    marks = Marks(out, rank)
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
