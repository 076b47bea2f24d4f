"""What prefixes and headers of a line say of who printed it and when: each fills fields of the line's context.

Prefixes (``prefixes``) are taken off a line. Headers of the programs whose lines are diagnosed stay in the message: those of
NCCL (``src/debug.cc``, 2.5 to 2.30), c10 (PyTorch ``c10/util/Logging.cpp``), process groups
(``torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp``, 2.1 to 2.15) and Gloo.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Context
from nccl_triage.parsers import times

_NCCL = lazily(
    r"(?:^|(?<=[\s>\]]))(?:\[(?P<ts>\d{4}-\d\d-\d\d[ T][\d:.]+)\] )?(?!\d\d?:\d\d:\d\d )(?P<host>[A-Za-z0-9_.%-]{0,255}):(?P<pid>\d{1,18}):(?P<tid>\d{1,18})"
    r" (?:\[(?P<dev>-?\d{1,7})\] )?(?=.{0,300}?(?:NCCL )?(?P<level>INFO|WARN|TRACE|CALL|ERROR) )"
)
_C10 = lazily(r"\[(?P<level>[IWEFVD])(?P<mmdd>\d{3,4}) (?P<time>\d\d:\d\d:\d\d\.\d+) (?P<file>[\w./-]+):\d+\] ")
_C10_OLD = lazily(r"\[(?P<level>[FEWIV]) (?P<file>[\w./-]+\.(?:cpp|hpp|h|cc)):\d+\] ")
_EMBEDDED_RANK = lazily(r"\[rank(?P<rank>\d{1,6})\]:")
_GROUP = lazily(r"\[PG [^\]\n]{0,160}?Rank (?P<rank>\d{1,7})\]")
_WORK_RANK = lazily(r"(?:^|\] |: )\[Rank (?P<rank>\d{1,7})\](?: |(?=\[ProcessGroup))")
_PLAIN_RANK = lazily(
    r"(?:^|[\s,(])(?:global[ _])?rank[ =:]{1,2}(?P<rank>\d{1,6})\b(?!\s*(?:successfully|is running|[./]\d))",
    re.IGNORECASE,
)

Handler = Callable[[re.Match[str], Context], None]


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


def _ray_node(node: str, context: Context) -> None:
    """Keep the node of a Ray prefix: its address, or its name where the cluster was started with one.

    The driver prints it for workers on other nodes only, so a host that stands before it is that of the driver.
    """
    context.host = None
    if ":" in node or re.fullmatch(r"\d{1,3}(?:\.\d{1,3}){3}", node):
        context.address = node
    else:
        context.host = node


def ray(match: re.Match[str], context: Context) -> None:
    """Take actor, pid and node of Ray's prefix; a name may hold the rank."""
    context.actor = match["name"] or context.actor
    context.pid = int(match["pid"])
    if match["ip"]:
        _ray_node(match["ip"], context)
    context.program = context.program or "ray"
    rank = re.search(r"rank=(\d{1,7})(?!\d)", match["name"] or "")
    if rank and re.match(r"(?:head|worker\d{0,6}), rank=", match["name"]):
        # SkyPilot counts nodes so (sky/backends/task_codegen.py); with one process on each they are ranks.
        context.group_rank = int(rank[1])
    elif rank:
        context.rank = int(rank[1])


def raylet(match: re.Match[str], context: Context) -> None:
    """Take the daemon of Ray that speaks, and its node."""
    context.actor = match["comp"]
    context.program = "ray"
    if match["ip"]:
        _ray_node(match["ip"], context)


def vllm_process(match: re.Match[str], context: Context) -> None:
    """Take the process of vLLM, its pid and its rank."""
    context.actor = match["proc"].split(" ")[0]
    context.pid = int(match["pid"])
    context.program = "vllm"
    rank = re.search(r"rank=(\d{1,7})(?!\d)", match["proc"])
    if rank:
        context.rank = int(rank[1])
    # Without pipeline or data parallelism the tensor-parallel rank is the worker's rank in its group.
    tensor = re.fullmatch(r"Worker_TP(\d{1,7})(?:_EP\d{1,7})?", context.actor)
    if tensor:
        context.group_rank = int(tensor[1])


def tee(match: re.Match[str], context: Context) -> None:
    """Take the local rank of torchelastic's tee."""
    context.local_rank = int(match["local"])


def similar(match: re.Match[str], context: Context) -> None:
    """Take how many lines like this were left out."""
    context.repeated = int(match["n"]) - 1


def axolotl(match: re.Match[str], context: Context) -> None:
    """Take pid and local rank of axolotl."""
    context.pid = int(match["pid"])
    context.program = "axolotl"
    # It prints LOCAL_RANK, and nothing for rank 0.
    context.local_rank = int(match["local"] or 0)


def rank_of(match: re.Match[str], context: Context) -> None:
    """Take the rank, and the size of the world where it is given."""
    if match[0].startswith("[Rank "):
        # ProcessGroupNCCL's own form: a rank inside the group, not a global one.
        context.group_rank = int(match["rank"])
    elif context.rank is None:
        context.rank = int(match["rank"])
    world = match.groupdict().get("world")
    if world:
        context.world_size = int(world)


def mpi_tag(match: re.Match[str], context: Context) -> None:
    """Take rank, stream and host of ``mpirun --tag-output`` and its like."""
    context.rank = int(match["rank"])
    context.stream = match["stream"]
    if host := match.groupdict().get("host"):
        set_host(context, host)


def mpi_host(match: re.Match[str], context: Context) -> None:
    """Take host and pid that an MPI launcher prints."""
    set_host(context, match["host"])
    context.pid = int(match["pid"])


def container(match: re.Match[str], context: Context) -> None:
    """Take the pod that a collector found the line at."""
    set_place(context, match["pod"])


def stamp(match: re.Match[str], context: Context) -> None:
    """Take a time stamp."""
    set_time(context, times.from_stamp(match["ts"]))


def log_record(match: re.Match[str], context: Context) -> None:
    """Take time, level, rank, pid and name of a logger's record."""
    part = match.groupdict()
    if part.get("ts"):
        set_time(context, times.from_stamp(part["ts"]))
    elif part.get("mmdd"):
        set_time(context, times.from_month_day(part["mmdd"], part["time"]))
    if part.get("level"):
        context.level = part["level"]
    if part.get("rank") and int(part["rank"]) >= 0:
        context.rank = int(part["rank"])
    if part.get("pid"):
        context.pid = int(part["pid"])
    name = part.get("name") or part.get("file")
    if name:
        context.program = name


def syslog(match: re.Match[str], context: Context) -> None:
    """Take time, host, program and pid of a syslog line."""
    set_time(context, times.from_stamp(match["ts"]))
    set_place(context, match["host"])
    context.program = context.service = match["prog"]
    if match["pid"]:
        context.writer = int(match["pid"])


def boot_time(match: re.Match[str], context: Context) -> None:
    """Take the kernel, which counts seconds since boot."""
    context.program = "kernel"


def cri(match: re.Match[str], context: Context) -> None:
    """Take time and stream of the container runtime."""
    set_time(context, times.from_stamp(match["ts"]))
    context.stream = match["stream"]


def xla_worker(match: re.Match[str], context: Context) -> None:
    """Take time and address of a worker of XLA."""
    set_time(context, times.from_stamp(match["ts"]))
    context.address = context.address or match["ip"]


def sglang(match: re.Match[str], context: Context) -> None:
    """Take time and tensor-parallel rank of SGLang."""
    set_time(context, times.from_stamp(match["ts"]))
    context.program = "sglang"
    rank = re.search(r"\bTP(\d{1,7})(?!\d)", match["ranks"] or "")
    if rank:
        context.group_rank = int(rank[1])


def read_headers(text: str, context: Context) -> None:
    """Fill the context from the headers inside the message, keeping what the wrappers said."""
    if "[rank" in text and context.rank is None:
        # Two writers on one stream: a progress bar glued in front of `[rank5]:[E602 ...`.
        embedded = _EMBEDDED_RANK.search(text)
        if embedded:
            context.rank = int(embedded["rank"])
    if ("NCCL" in text or " WARN " in text or " INFO " in text) and (found := _NCCL.search(text)):
        context.host = context.host or found["host"] or None
        context.pid = int(found["pid"])
        context.tid = int(found["tid"])
        if found["dev"] is not None:
            context.gpu = int(found["dev"])
        context.level = context.level or found["level"]
        context.program = "nccl"
        if found["ts"]:
            set_time(context, times.from_stamp(found["ts"]))
    if found := _C10.search(text):
        context.level = found["level"]
        context.program = found["file"]
        set_time(context, times.from_month_day(found["mmdd"], found["time"]))
    elif found := _C10_OLD.search(text):
        context.level = found["level"]
        context.program = found["file"]
    if ("[PG " in text and (found := _GROUP.search(text))) or ("[Rank " in text and (found := _WORK_RANK.search(text))):
        context.group_rank = int(found["rank"])


def plain_rank(text: str) -> int | None:
    """Return the rank that a training script's own line names (``rank=3``, ``rank: 2``), or None."""
    found = _PLAIN_RANK.search(text)
    return int(found["rank"]) if found else None
