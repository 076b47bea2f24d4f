"""What the groups of prefixes set in the context of a line: the fields that ``rules/prefixes`` may name."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Context
from nccl_triage.parsers import times

#: Sets a field of a context to what a text says.
Setter = Callable[[Context, str], None]

SETTERS: dict[str, Setter] = {}
_ADDRESS = lazily(r"\d{1,3}(?:\.\d{1,3}){3}")
_RANK = lazily(r"rank=(\d{1,7})(?!\d)")
_SKYPILOT = lazily(r"(?:head|worker\d{0,6}), rank=")
_TENSOR_WORKER = lazily(r"Worker_TP(\d{1,7})(?:_EP\d{1,7})?")
_TENSOR_RANK = lazily(r"\bTP(\d{1,7})(?!\d)")


def setter(name: str) -> Callable[[Setter], Setter]:
    """Register what sets a field."""

    def register(function: Setter) -> Setter:
        SETTERS[name] = function
        return function

    return register


def set_host(context: Context, host: str | None) -> None:
    """Keep the outermost host, as inner ones may be container ids."""
    if host and context.host is None:
        context.host = host


def set_place(context: Context, place: str | None) -> None:
    """Keep the innermost place: a collector may hand on what another one, nearer to the process, has collected."""
    if place:
        context.place = place


def set_time(context: Context, time: float | None) -> None:
    """Keep the outermost stamp, which every line of a source has, and the innermost, which the program itself printed."""
    if time is None:
        return
    if context.time is None:
        context.time = time
    else:
        context.printed = time


setter("host")(set_host)
setter("place")(set_place)


@setter("time")
def _time(context: Context, text: str) -> None:
    set_time(context, times.from_stamp(text))


@setter("time-without-year")
def _time_without_year(context: Context, text: str) -> None:
    month_day, _, clock = text.partition(" ")
    with contextlib.suppress(ValueError):  # a user's pattern that allows another form
        set_time(context, times.from_month_day(month_day, clock))


@setter("level")
def _level(context: Context, text: str) -> None:
    context.level = text


@setter("rank")
def _rank(context: Context, text: str) -> None:
    if int(text) >= 0:
        context.rank = int(text)


@setter("rank-unless-known")
def _rank_unless_known(context: Context, text: str) -> None:
    if context.rank is None:
        context.rank = int(text)


@setter("group-rank")
def _group_rank(context: Context, text: str) -> None:
    context.group_rank, context.labelled = int(text), False


@setter("task")
def _task(context: Context, text: str) -> None:
    context.group_rank, context.labelled = int(text), True


@setter("local-rank")
def _local_rank(context: Context, text: str) -> None:
    context.local_rank = int(text)


@setter("world-size")
def _world_size(context: Context, text: str) -> None:
    context.world_size = int(text)


@setter("address")
def _address(context: Context, text: str) -> None:
    context.address = context.address or text


@setter("ray-node")
def _ray_node(context: Context, text: str) -> None:
    """Ray's driver prints the node of workers on other nodes only, so a host that stands before it is that of the driver.

    It is an address, or a name where the cluster was started with one.
    """
    context.host = None
    if ":" in text or _ADDRESS.fullmatch(text):
        context.address = text
    else:
        context.host = text


@setter("launcher-node")
def _launcher_node(context: Context, text: str) -> None:
    """What a launcher says of where the line comes from is within what the launcher's own host wrote."""
    if text[0].isdigit():
        context.address = context.address or text
    else:
        context.host = text


@setter("inner-node")
def _inner_node(context: Context, text: str) -> None:
    if text[0].isdigit():
        context.address = text
    else:
        context.host = text


@setter("pid")
def _pid(context: Context, text: str) -> None:
    context.pid = int(text)


@setter("writer")
def _writer(context: Context, text: str) -> None:
    context.writer = int(text)


@setter("actor")
def _actor(context: Context, text: str) -> None:
    context.actor = text


@setter("ray-actor")
def _ray_actor(context: Context, text: str) -> None:
    context.actor = text
    context.group_rank, context.labelled = None, False  # a label before it is that of the driver
    rank = _RANK.search(text)
    if rank and _SKYPILOT.match(text):
        # SkyPilot counts nodes so (sky/backends/task_codegen.py); with one process on each they are ranks.
        context.group_rank = int(rank[1])
    elif rank:
        context.rank = int(rank[1])


@setter("vllm-process")
def _vllm_process(context: Context, text: str) -> None:
    context.actor = text.split(" ")[0]
    rank = _RANK.search(text)
    if rank:
        context.rank = int(rank[1])
    # Without pipeline or data parallelism the tensor-parallel rank is the worker's rank in its group.
    tensor = _TENSOR_WORKER.fullmatch(context.actor)
    if tensor:
        context.group_rank, context.labelled = int(tensor[1]), False


@setter("sglang-ranks")
def _sglang_ranks(context: Context, text: str) -> None:
    rank: re.Match[str] | None = _TENSOR_RANK.search(text)
    if rank:
        context.group_rank, context.labelled = int(rank[1]), False


@setter("program")
def _program(context: Context, text: str) -> None:
    context.program = text


@setter("program-unless-known")
def _program_unless_known(context: Context, text: str) -> None:
    context.program = context.program or text


@setter("service")
def _service(context: Context, text: str) -> None:
    context.program = context.service = text


@setter("stream")
def _stream(context: Context, text: str) -> None:
    context.stream = text


@setter("lines-alike")
def _lines_alike(context: Context, text: str) -> None:
    context.repeated = int(text) - 1


@setter("line-number")
def _line_number(context: Context, text: str) -> None:
    """It counts lines; ``learned_prefix`` asks whether it rises."""
