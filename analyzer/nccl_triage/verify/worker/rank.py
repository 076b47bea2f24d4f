"""One rank of an experiment: joins, runs the collective, checks every element, measures the time, and reports."""

from __future__ import annotations

import inspect
import json
import math
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from . import compute, faults, memory, timing, variables
from .collectives import Prepared
from .control import Control, entries
from .ops import DTYPES, operation
from .payload import Call
from .progress import OwnFailureError, ProgressMarks
from .store import tcp_store
from .window import Window


def preload() -> str:
    """Import torch.distributed and what its first use imports; returns torch's version."""
    import torch
    import torch.distributed
    import torch.distributed.distributed_c10d

    torch.set_num_threads(1)
    version: str = torch.__version__
    return version


#: Characters of an error's text that are kept.
TEXT = 1500
#: What torch says of a type or an operation that its backend has not: nothing has been tried then.
REFUSED = re.compile(
    r"Invalid scalar type|not supported for NCCL process group|not cur\w+ supported for NCCL|unsupported data ?type"
    r"|\b(?:backend|ProcessGroup)\w*(?: \S+)? does not (?:support|implement)",
    re.IGNORECASE,
)
#: What torch says when there is not enough memory, on the CPU and on GPUs.
NO_MEMORY = re.compile(r"out of memory|(?:can't|cannot|not enough|failed to) allocate|not enough memory", re.IGNORECASE)
#: Seconds that the timed iterations of each further collective may take, and those of each size of a sweep.
PART_SECONDS, SIZE_SECONDS = 0.5, 1.0


def _import(spec: dict[str, Any], marks: ProgressMarks) -> tuple[Any, Any]:
    """Return torch and torch.distributed; raises OwnFailureError when this torch cannot run the experiment."""
    import torch
    import torch.distributed as dist

    nccl = _nccl_version(torch, dist) if spec["backend"] == "nccl" else None
    missing = {message["dtype"] for message in _messages(spec) if not hasattr(torch, message["dtype"])}
    if missing:
        raise OwnFailureError(f"torch {torch.__version__} has no {', '.join(sorted(missing))}")
    torch.set_num_threads(1)
    marks.say("imported", torch=torch.__version__, cuda=torch.version.cuda, nccl=nccl)
    return torch, dist


def _nccl_version(torch: Any, dist: Any) -> str:
    if not dist.is_nccl_available():
        raise OwnFailureError(f"torch {torch.__version__} was built without NCCL")
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except Exception as error:
        raise OwnFailureError(f"torch {torch.__version__} does not tell the version of its NCCL: {error}") from error


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
    store = tcp_store(dist, spec["store"], spec["world"], rank, limit)
    return dist.PrefixStore("verify", store)


def _room(store: Any, own: memory.MemoryRoom, rank: int, world: int) -> int:
    """Return the bytes that every rank may take, the same on all ranks; rank 0 finds out."""
    store.set(f"room/{rank}", json.dumps(own))
    if rank == 0:
        rooms = [memory.MemoryRoom(*json.loads(store.get(f"room/{other}"))) for other in range(world)]
        store.set("room", str(memory.least(rooms)))
    return int(store.get("room"))


def _together(store: Any, name: str, world: int, limit: timedelta) -> None:
    """Wait until all ranks have come here, so that a rank that leaves later does not look like one that never came."""
    if store.add(name, 1) == world:
        store.set(f"all-{name}", "1")
    store.wait([f"all-{name}"], limit)


def _leave(store: Any, rank: int, world: int, limit: timedelta) -> None:
    """Keep the store, which lives in rank 0, until nobody needs it any more."""
    if store.add("left", 1) == world:
        store.set("all-left", "1")
    if rank == 0:
        store.wait(["all-left"], limit)


def _takes(function: Any, name: str) -> bool:
    """Tell whether a function has an argument of this name: older releases lack some."""
    known = inspect.signature(function).parameters.values()
    return any(argument.name == name or argument.kind is argument.VAR_KEYWORD for argument in known)


def _group(dist: Any, spec: dict[str, Any], store: Any, rank: int, device: Any) -> None:
    """Make the process group, and with NCCL its communicator, which torch would otherwise make with the first collective."""
    limit = timedelta(seconds=float(spec["timeout"]))
    eager = {"device_id": device} if device.type == "cuda" and _takes(dist.init_process_group, "device_id") else {}
    dist.init_process_group(spec["backend"], store=store, rank=rank, world_size=spec["world"], timeout=limit, **eager)
    _together(store, "joined", spec["world"], limit)


def _messages(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield spec
    yield from spec.get("more", ())


def _fitting(message: Mapping[str, Any], world: int, room: int) -> int:
    """Return the elements of a message for which there is room on every rank."""
    row = operation(message["op"])
    return row.fitting(int(message["numel"]), world, DTYPES[message["dtype"]], room)


class RankWork:
    """What one rank does of an experiment, with a mark after each stage."""

    def __init__(self, spec: dict[str, Any], rank: int, marks: ProgressMarks, fault: faults.Fault) -> None:
        self.spec, self.rank, self.marks, self.fault = spec, rank, marks, fault
        self.world = int(spec.get("world", 1))
        self.torch: Any = None
        self.dist: Any = None
        self.device: Any = None

    def carry_out(self, control: Control) -> None:
        """Do everything that the spec asks of the rank."""
        spec, marks = self.spec, self.marks
        self.fault.at("start")
        self.torch, self.dist = _import(spec, marks)
        self.device = _device(self.torch, spec, marks)
        if spec.get("go"):
            control.wait_for_all()
        if spec.get("alone"):
            self.fault.at("compute")
            compute.alone(self.torch, self.device, marks)
            return
        self.fault.at("store")
        store = _store(self.dist, spec, self.rank)
        marks.say("store")
        limit = timedelta(seconds=float(spec["timeout"]))
        room = 0
        if spec.get("joins") == "store":
            _together(store, "met", self.world, limit)
        else:
            room = _room(store, memory.room(self.torch, self.device), self.rank, self.world)
            self.fault.at("group")
            _group(self.dist, spec, store, self.rank, self.device)
            marks.say("group")
        if spec.get("joins") == "store" or not operation(spec["op"]).moves:
            # No collective: it would make the connections that are not the question.
            _leave(store, self.rank, self.world, limit)
            marks.say("done", wrong=0, seconds=[])
            return
        outcome = self._main(room)
        for part in spec.get("more", ()):
            self._part(part, room)
        for size in spec.get("sweep", ()):
            self._size(int(size), room)
        # Data that cannot be compared with ranks that still work: leave together.
        self.dist.barrier()
        marks.say("done", **outcome)
        self.dist.destroy_process_group()

    def _seconds(self, usual: float) -> float:
        """Return the seconds that timed iterations may take: what they usually may, or a part of the parent's limit."""
        return min(usual, float(self.spec.get("timed", math.inf)) / 8)

    def _call(self, dist: Any, numel: int, dtype: str, pair: Any = None) -> Call:
        spec = self.spec
        return Call(
            torch=self.torch,
            dist=dist,
            rank=self.rank,
            world=self.world,
            numel=numel,
            dtype=getattr(self.torch, dtype),
            device=self.device,
            root=int(spec.get("root", 0)),
            pair=tuple(pair or spec.get("pair", (0, 1))),
        )

    def _prepared(self, op: str, call: Call) -> Prepared:
        """Return an operation with its buffers, filled; raises OwnFailureError when there is no memory for them."""
        try:
            prepared = operation(op).prepare(call)
            prepared.fill(0)
            timing.synchronize(call)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, MemoryError) or NO_MEMORY.search(str(error)):
                raise OwnFailureError(f"no memory for {call.numel} elements: {error}") from error
            raise
        return prepared

    def _main(self, room: int) -> dict[str, Any]:
        """Run the collective in question; returns what the last mark tells of it."""
        spec, marks = self.spec, self.marks
        numel = _fitting(spec, self.world, room)
        own = self.fault.message({**spec, "numel": numel})
        window = Window(self.dist, lambda note: marks.say("call", **note))
        call = self._call(window, int(own["numel"]), own["dtype"])
        prepared = self._prepared(own["op"], call)
        self.fault.at("entered")
        marks.say("entered", op=own["op"], numel=numel)
        self.fault.first(call)
        started = time.perf_counter()
        try:
            prepared.issue()
            timing.synchronize(call)
        except (RuntimeError, TypeError, ValueError) as error:
            if not REFUSED.search(str(error)):
                raise
            what = f"{own['op']} of {own['dtype']} by {spec['backend']}"
            raise OwnFailureError(f"torch {self.torch.__version__} refuses {what}: {error}") from error
        took = round(time.perf_counter() - started, 6)
        wrong = prepared.wrong(0)
        marks.say("warm", seconds=took, wrong=wrong)
        call.dist = self.dist  # the calls of the further iterations are all alike: nothing to note
        work = compute.between(self.torch, self.device)
        watch = timing.Stopwatch(
            call,
            prepared,
            before=self.fault.before,
            between=lambda: compute.step(work),
            alive=lambda done: marks.say("iteration", done=done),
            seconds=self._seconds(timing.SECONDS),
        )
        outcome = timing.measured(watch, int(spec["iterations"]))
        outcome["wrong"] += wrong
        return {**outcome, "compute": work.told()}

    def _part(self, message: Mapping[str, Any], room: int) -> None:
        """Run one further collective in the same group."""
        op, dtype, numel = message["op"], message["dtype"], _fitting(message, self.world, room)
        self.marks.say("call", call=operation(op).calls, message=[dtype, numel], part=True)
        outcome = self._further(op, dtype, numel, PART_SECONDS, message.get("pair"))
        self.marks.say("part", op=op, dtype=dtype, numel=numel, **outcome)

    def _size(self, size: int, room: int) -> None:
        """Run the collective in question with S of ``size`` bytes, as near as whole elements come to it."""
        op, dtype = self.spec["op"], self.spec["dtype"]
        row, element = operation(op), DTYPES[dtype]
        unit = max(1, row.bytes(1, self.world, element))
        numel = row.fitting(max(1, size // unit), self.world, element, room)
        outcome = self._further(op, dtype, numel, SIZE_SECONDS)
        self.marks.say("size", numel=numel, **outcome)

    def _further(self, op: str, dtype: str, numel: int, seconds: float, pair: Any = None) -> dict[str, Any]:
        call = self._call(self.dist, numel, dtype, pair)
        watch = timing.Stopwatch(call, self._prepared(op, call), seconds=self._seconds(seconds))
        found = timing.measured(watch, 1)
        return {"wrong": found["wrong"], "median": found["median"]}


def _cut(text: str) -> str:
    return text if len(text) <= TEXT else f"{text[: TEXT // 2]} ... {text[-TEXT // 2 :]}"


def _own(error: BaseException, stage: str) -> bool:
    """Tell whether an error says nothing of the hosts: before torch is there, and where this torch cannot do it."""
    if isinstance(error, (OwnFailureError, NotImplementedError)) or stage == "start":
        return True
    return stage == "imported" and bool(NO_MEMORY.search(str(error)))  # a GPU without room for a context


def run(spec: dict[str, Any], rank: int, out: int, control: int) -> int:
    """Run one rank to its end and return the exit code: 0 for done, 3 for an error that was reported."""
    variables.set_up(spec)
    marks = ProgressMarks(out, rank)
    marks.say("start", pid=os.getpid())
    fault = faults.of(spec, rank)
    try:
        RankWork(spec, rank, marks, fault).carry_out(Control(control, marks))
    except BaseException as error:  # whatever happened is the result of the experiment
        # As any training program does: the log is read by the same parsers as the user's.
        traceback.print_exc()
        torch = sys.modules.get("torch")
        if hasattr(torch, "_C"):
            marks.say("flight", entries=entries(torch))
        marks.say("error", type=type(error).__name__, text=_cut(str(error)), own=_own(error, marks.stage))
        return 3
    return 0
