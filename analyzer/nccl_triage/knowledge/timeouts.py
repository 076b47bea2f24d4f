"""Time-outs by arithmetic: who sets a value, what a collective needs, what the phases of a model need.

Pure functions. Bandwidths are GB/s (1e9 bytes a second); the bytes that count and the factor of the bus bandwidth are
those of nccl-tests (doc/PERFORMANCE.md), taken from the verifier's table of operations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from nccl_triage.knowledge import amounts, catalogue, reading
from nccl_triage.knowledge.entries import Knob, Owner, Text

#: A bus bandwidth that a working path exceeds: less than Ethernet of 1 Gbit/s carries.
SLOW = 0.1
#: A larger number of elements means that the log did not know the size.
MAX_NUMEL = 1e13
#: PyTorch's own default for NCCL: a recommendation never goes below it.
LEAST = 600
DTYPE_BYTES = {
    "float32": 4, "fp32": 4, "float": 4, "float64": 8, "fp64": 8, "double": 8, "float16": 2, "fp16": 2, "half": 2,
    "bfloat16": 2, "bf16": 2, "int64": 8, "long": 8, "int32": 4, "int": 4, "int16": 2, "int8": 1, "uint8": 1,
    "byte": 1, "bool": 1, "fp8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
#: When the log does not tell the dtype: the widest of those that models communicate in.
ASSUMED_DTYPE = "fp32"
#: Frameworks as a document names them -> programs of the table of owners.
_PROGRAMS = {"huggingface": ("transformers", "accelerate")}


class CollectiveTraffic(NamedTuple):
    """What one collective moves: ``bytes`` as nccl-tests counts them, ``factor`` of the bus bandwidth.

    ``world`` is None when the size of the group is unknown; the factor is then that of an infinite group.
    """

    op: str
    numel: int
    world: int | None
    dtype: str
    bytes: int
    factor: float

    def seconds(self, bandwidth: float = SLOW) -> float:
        """Return the time at a bus bandwidth in GB/s."""
        return self.bytes * self.factor / (bandwidth * 1e9)


def operation_name(name: str) -> str | None:
    """Return the OpType that a name stands for (``all_gather``, ``AllReduce``, ``_ALLGATHER_BASE``), or None."""
    return _operations().get(_plain(name))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


@cache
def _operations() -> dict[str, str]:
    from nccl_triage.verify.worker.ops import OPERATIONS

    calls = {_plain(row.calls): row.name for row in OPERATIONS.values()}
    return calls | {_plain(row.name): row.name for row in OPERATIONS.values()}


def message(op: str, numel: int, world: int, dtype: str | None = None) -> CollectiveTraffic | None:
    """Return what a collective moves; ``numel`` is NumelIn. None for unknown operations, sizes and types."""
    from nccl_triage.verify.worker.ops import OPERATIONS

    name, kind = operation_name(op), (dtype or ASSUMED_DTYPE).lower().removeprefix("torch.")
    if name is None or kind not in DTYPE_BYTES or not 0 <= numel <= MAX_NUMEL or world < 1:
        return None
    row = OPERATIONS[name]
    size = row.bytes(numel, world, DTYPE_BYTES[kind])
    return CollectiveTraffic(name, numel, world, kind, size, row.bus_factor(world))


def message_of_unknown_group(
    op: str, numel: int | None, out: int | None, dtype: str | None = None
) -> CollectiveTraffic | None:
    """Return what a collective moves at most when the size of its group is unknown: by NumelIn or NumelOut."""
    from nccl_triage.verify.worker.ops import OPERATIONS

    name = operation_name(op)
    if name is None:
        return None
    row = OPERATIONS[name]
    elements = out if row.size == "all" else numel
    found = message(op, elements, 1, dtype) if elements is not None else None
    factor = (2.0 if row.double else 1.0) if row.ring else 1.0
    return found._replace(world=None, factor=factor) if found is not None else None


def owners(milliseconds: int, known: Mapping[str, str], frameworks: Sequence[str] = ()) -> list[Owner]:
    """Return who may have set a timeout, the programs that the log shows first.

    ``known`` maps programs to versions: who is contradicted by one is left out.
    """
    shown = {program for name in frameworks for program in _PROGRAMS.get(name, (name,))} | set(known)
    possible = [
        owner
        for owner in catalogue.owners()
        if owner.milliseconds == milliseconds and not reading.contradicts(owner.bounds, known)
    ]
    return sorted(possible, key=lambda owner: owner.program not in shown)


def written(knob: Knob, seconds: int | None) -> str:
    """Return how a knob is set to so many seconds, or with words in capitals for the numbers."""
    if seconds is None:
        return knob.write.format(seconds="SECONDS", minutes="MINUTES", hours="HOURS")
    return knob.write.format(seconds=seconds, minutes=-(-seconds // 60), hours=-(-seconds // 3600))


class Assumptions(NamedTuple):
    """What the phases rest on: rates in GB/s, bytes per parameter, seconds. ``measured`` is a phase that was timed."""

    parameters: float
    storage: float = 1.0
    network: float = 1.25
    weight_bytes: float = 2.0
    state_bytes: float = 14.0
    compile: float = 300.0
    tokens: float = 0.0
    token_rate: float = 1e6
    measured: float = 0.0
    factor: float = 2.0


class Phase(NamedTuple):
    """A phase in which one rank works while the others wait; ``sum`` shows the arithmetic."""

    id: str
    title: Text
    seconds: float
    sum: str


TITLES: dict[str, Text] = {
    "load": {"en": "one rank reads the weights", "zh": "单个 rank 读取权重"},
    "send": {
        "en": "the weights go to one rank, or to an inference engine",
        "zh": "权重汇集到单个 rank，或发送到推理引擎",
    },
    "save": {
        "en": "one rank gathers and writes a checkpoint (weights and optimizer)",
        "zh": "单个 rank 汇集并写出检查点（权重和优化器状态）",
    },
    "compile": {"en": "compiling and capturing graphs (assumed)", "zh": "编译与捕获 CUDA graph（假设值）"},
    "tokenise": {"en": "one rank tokenises the data", "zh": "单个 rank 对数据分词"},
    "measured": {"en": "the phase you measured", "zh": "你测得的阶段"},
}


def _moving(parameters: float, each: float, rate: float) -> tuple[float, str]:
    seconds = parameters * each / (rate * 1e9)
    return seconds, f"{amounts.short(parameters / 1e9)}e9 x {amounts.short(each)} B / {amounts.short(rate)} GB/s"


def phases(given: Assumptions) -> list[Phase]:
    """Return the legitimate long phases of a model, the longest first."""
    load, load_sum = _moving(given.parameters, given.weight_bytes, given.storage)
    send, send_sum = _moving(given.parameters, given.weight_bytes, given.network)
    collect, collect_sum = _moving(given.parameters, given.state_bytes, given.network)
    write, write_sum = _moving(given.parameters, given.state_bytes, given.storage)
    found = [
        ("load", load, load_sum),
        ("send", send, send_sum),
        ("save", collect + write, f"{collect_sum} + {write_sum}"),
        ("compile", given.compile, ""),
    ]
    if given.tokens:
        rate = f"{amounts.short(given.tokens / 1e6)}e6 / {amounts.short(given.token_rate / 1e6)}e6 per s"
        found.append(("tokenise", given.tokens / given.token_rate, rate))
    if given.measured:
        found.append(("measured", given.measured, ""))
    rows = [Phase(name, TITLES[name], seconds, arithmetic) for name, seconds, arithmetic in found]
    return sorted(rows, key=lambda phase: (-phase.seconds, phase.id))


def recommended(given: Assumptions) -> int:
    """Return a timeout in seconds: the longest phase times the factor, rounded up, never below PyTorch's default."""
    longest = phases(given)[0].seconds
    return max(LEAST, amounts.rounded_up(longest * given.factor))
