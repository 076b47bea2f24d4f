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
from .ops import Call, operation

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


def _measure(call: Call, spec: dict[str, Any], prepared: Any, marks: Marks, fault: faults.Fault) -> dict[str, Any]:
    """Return the outcome of the timed iterations: wrong elements and seconds each."""
    issue, count_wrong = prepared
    wrong, seconds = 0, []
    begun = time.monotonic()
    for iteration in range(1, int(spec["iterations"]) + 1):
        call.dist.barrier()
        _synchronize(call.torch, call.device)
        fault.before(iteration)
        started = time.perf_counter()
        issue(iteration)
        _synchronize(call.torch, call.device)
        seconds.append(time.perf_counter() - started)
        wrong += count_wrong(iteration)
        if iteration % 20 == 0:
            marks.say("iteration", done=iteration)
        # Every rank must leave the loop at the same iteration: rank 0 decides and tells.
        if iteration >= 3 and _enough(call, time.monotonic() - begun):
            break
    return {"wrong": wrong, "seconds": [round(value, 7) for value in seconds], "median": statistics.median(seconds)}


def _part(call: Call, message: dict[str, Any], marks: Marks) -> None:
    """Run one further collective in the same group: once to warm up and check, then timed."""
    own = replace(call, numel=int(message["numel"]), dtype=getattr(call.torch, message["dtype"]))
    issue, count_wrong = operation(message["op"]).prepare(own)
    marks.say("call", call=operation(message["op"]).calls, message=[message["dtype"], own.numel], part=True)
    wrong, seconds = 0, []
    for iteration in range(1 + PART_ITERATIONS):
        call.dist.barrier()
        _synchronize(call.torch, call.device)
        started = time.perf_counter()
        issue(iteration)
        _synchronize(call.torch, call.device)
        if iteration:
            seconds.append(time.perf_counter() - started)
        wrong += count_wrong(iteration)
    marks.say("part", **message, wrong=wrong, median=statistics.median(seconds))


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


def run(spec: dict[str, Any], rank: int, out: int, control: int) -> int:
    """Run one rank to its end and return the exit code: 0 for done, 3 for an error that was reported."""
    _set_up(spec)
    marks = Marks(out, rank)
    marks.say("start", pid=os.getpid())
    fault = faults.of(spec, rank)
    try:
        fault.at("start")
        import torch
        import torch.distributed as dist

        nccl = None
        if spec["backend"] == "nccl":
            nccl = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        torch.set_num_threads(1)
        marks.say("imported", torch=torch.__version__, cuda=torch.version.cuda, nccl=nccl)
        _listen(control, marks, torch)
        device = _device(torch, spec, marks)
        fault.at("store")
        store = _store(dist, spec, rank)
        marks.say("store")
        fault.at("group")
        limit = timedelta(seconds=float(spec["timeout"]))
        options: dict[str, Any] = {"device_id": device} if spec.get("eager") and device.type == "cuda" else {}
        dist.init_process_group(
            spec["backend"], store=store, rank=rank, world_size=spec["world"], timeout=limit, **options
        )
        _all_joined(store, spec["world"], limit)
        marks.say("group")
        window = Window(dist, lambda note: marks.say("call", **note))
        own = fault.message(spec)
        call = Call(
            torch=torch,
            dist=window,
            rank=rank,
            world=spec["world"],
            numel=int(own["numel"]),
            dtype=getattr(torch, own["dtype"]),
            device=device,
            root=int(spec.get("root", 0)),
            pair=tuple(spec.get("pair", (0, 1))),
        )
        prepared = operation(own["op"]).prepare(call)
        fault.at("entered")
        marks.say("entered", op=own["op"])
        fault.first(call)
        started = time.perf_counter()
        prepared[0](0)
        _synchronize(torch, device)
        wrong = prepared[1](0)
        marks.say("warm", seconds=round(time.perf_counter() - started, 6), wrong=wrong)
        call.dist = dist  # the calls of the timed iterations are all alike: nothing to note
        outcome = _measure(call, spec, prepared, marks, fault)
        outcome["wrong"] += wrong
        for part in spec.get("more", ()):
            _part(call, part, marks)
        # Data that cannot be compared with ranks that still work: leave together.
        dist.barrier()
        marks.say("done", **outcome)
        dist.destroy_process_group()
    except BaseException as error:  # whatever happened is the result of the experiment
        # As any training program does: the log is read by the same parsers as the user's.
        traceback.print_exc()
        marks.say("error", type=type(error).__name__, text=_cut(str(error)))
        return 3
    return 0
