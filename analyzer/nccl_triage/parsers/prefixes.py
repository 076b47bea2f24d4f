"""The prefixes that cannot be mistaken for text, as a table: pattern and what it says about the line.

Grammars: Ray ``_private/ray_logging.py``, torchelastic ``multiprocessing/tail_log.py``, Slurm ``srun --label``,
Open MPI ``--tag-output``, Docker json-file, Kubernetes CRI, vLLM ``logger.py``, DeepSpeed ``utils/logging.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Context
from nccl_triage.parsers import times

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


def _ray(match: re.Match[str], context: Context) -> None:
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


def _raylet(match: re.Match[str], context: Context) -> None:
    context.actor = match["comp"]
    context.program = "ray"
    if match["ip"]:
        _ray_node(match["ip"], context)


def _vllm_process(match: re.Match[str], context: Context) -> None:
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


def _tee(match: re.Match[str], context: Context) -> None:
    context.local_rank = int(match["local"])


def _similar(match: re.Match[str], context: Context) -> None:
    context.repeated = int(match["n"]) - 1


def _axolotl(match: re.Match[str], context: Context) -> None:
    context.pid = int(match["pid"])
    context.program = "axolotl"
    # It prints LOCAL_RANK, and nothing for rank 0.
    context.local_rank = int(match["local"] or 0)


def _rank(match: re.Match[str], context: Context) -> None:
    if match[0].startswith("[Rank "):
        # ProcessGroupNCCL's own form: a rank inside the group, not a global one.
        context.group_rank = int(match["rank"])
    elif context.rank is None:
        context.rank = int(match["rank"])
    world = match.groupdict().get("world")
    if world:
        context.world_size = int(world)


def _mpi_tag(match: re.Match[str], context: Context) -> None:
    context.rank = int(match["rank"])
    context.stream = match["stream"]
    if host := match.groupdict().get("host"):
        set_host(context, host)


def _mpi_host(match: re.Match[str], context: Context) -> None:
    set_host(context, match["host"])
    context.pid = int(match["pid"])


def _container(match: re.Match[str], context: Context) -> None:
    set_place(context, match["pod"])


def _stamp(match: re.Match[str], context: Context) -> None:
    set_time(context, times.from_stamp(match["ts"]))


def _log(match: re.Match[str], context: Context) -> None:
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


def _syslog(match: re.Match[str], context: Context) -> None:
    set_time(context, times.from_stamp(match["ts"]))
    set_place(context, match["host"])
    context.program = context.service = match["prog"]
    if match["pid"]:
        context.writer = int(match["pid"])


def _boot_time(match: re.Match[str], context: Context) -> None:
    context.program = "kernel"


def _cri(match: re.Match[str], context: Context) -> None:
    set_time(context, times.from_stamp(match["ts"]))
    context.stream = match["stream"]


def _xla_worker(match: re.Match[str], context: Context) -> None:
    set_time(context, times.from_stamp(match["ts"]))
    context.address = context.address or match["ip"]


def _sglang(match: re.Match[str], context: Context) -> None:
    set_time(context, times.from_stamp(match["ts"]))
    context.program = "sglang"
    rank = re.search(r"\bTP(\d{1,7})(?!\d)", match["ranks"] or "")
    if rank:
        context.group_rank = int(rank[1])


_LEVELS = r"(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|SUCCESS|TRACE)"
#: A date and a time of day.
ISO_TS = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_ADDRESS = r"[0-9A-Fa-f.:]+"
# Ray's `ip=` repeats --node-ip-address, which may be a host's name.
_RAY_NODE = r"[\w.:-]{1,253}"

#: Prefixes that cannot be mistaken for text: (name, first characters, pattern, handler).
_CERTAIN: tuple[tuple[str, str, re.Pattern[str], Handler], ...] = tuple(
    (name, first, lazily(pattern), handler)
    for name, first, pattern, handler in (
        (
            "vllm-process",
            "(",
            r"\((?P<proc>EngineCore(?:_(?:DP)?\d+)?|DPEngineCoreActor\w*|VllmWorkerProcess|VllmWorker(?:-\d+)?"
            r"(?: rank=\d+| TP\d{1,7}[\w ]{0,80})?|Worker(?:_\w+)?|RayWorkerProc\w*|APIServer|ApiServer_\d+|DPCoordinator"
            r"|Process-\d+|SpawnProcess-\d+|MainProcess) pid=(?P<pid>\d{1,18})\) ?",
            _vllm_process,
        ),
        (
            "ray",
            "(",
            r"\((?:(?P<name>[^\s()][^()]{0,120}?(?:\([^()]{0,80}\))?) )?pid=(?P<pid>\d{1,18})(?:, ip=(?P<ip>"
            + _RAY_NODE
            + r"))?\) ?",
            _ray,
        ),
        (
            "ray-daemon",
            "(",
            r"\((?:pid=)?(?P<comp>raylet|gcs_server|runtime_env)(?:, ip=(?P<ip>" + _RAY_NODE + r"))?\) ?",
            _raylet,
        ),
        (
            "ray-autoscaler",
            "(",
            r"\((?P<comp>autoscaler) \+(?:\d+h)?(?:\d+m)?(?:\d+s)?(?:, ip=(?P<ip>" + _RAY_NODE + r"))?\) ?",
            _raylet,
        ),
        ("monarch", "[", r"\[(?P<n>[1-9]\d{0,5}) similar log lines\] ", _similar),
        ("torch-rank", "[", r"\[rank(?P<rank>\d{1,6})\](?:: ?| )", _rank),
        ("rank-of-world", "[", r"\[(?i:rank)[ :=]{1,2}(?P<rank>\d{1,6})(?:/(?P<world>\d{1,7}))?\]:? ?", _rank),
        ("torchelastic-tee", "[", r"\[(?!rank)(?P<role>[A-Za-z_][A-Za-z_-]{0,40})(?P<local>\d{1,4})\]:", _tee),
        (
            "mpi-tag",
            "[",
            # Open MPI: [job,rank]<stream>:  Horovod: [rank]<stream>:  SageMaker: [job,mpirank:rank,host]<stream>:
            r"\[(?:(?:[\w.@-]*@)?\d+,)?(?:mpirank:)?(?P<rank>\d{1,7})(?:,(?P<host>[A-Za-z][\w.-]{0,100}))?\]"
            r"<(?P<stream>stdout|stderr|stddiag)>: ?",
            _mpi_tag,
        ),
        (
            # horovodrun --prefix-output-with-timestamp
            "horovod-timed",
            "MTWFS",
            r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
            # mpirun --timestamp-output --tag-output writes the number of the job, too.
            r"\[(?:\d+,)?(?P<rank>\d{1,7})\]<(?P<stream>stdout|stderr)>: ?",
            _mpi_tag,
        ),
        (
            "mpi-host",
            "[",
            # What has the ending of a source file is one: `[pretrain.py:288] `.
            r"\[(?P<host>(?!(?:PID|RANK|LOCAL_RANK|[\w.-]{1,200}\.(?:py|pyx|sh|cc?|cpp|cu|hp*|go|rs|java|scala|js)):)[A-Za-z][\w.-]*):"
            r"(?P<pid>\d{1,18})\] (?=\S)",
            _mpi_host,
        ),
        ("axolotl", "[", r"\[PID:(?P<pid>\d{1,18})\](?: \[RANK:(?P<local>\d{1,7})\])? (?=\S)", _axolotl),
        ("kubectl", "[", r"\[pod/(?P<pod>[a-z0-9.-]+)/(?P<container>[a-z0-9-]+)\] ", _container),
        (
            # `grep` or `tail` over the files in which a kubelet keeps the output of containers.
            "container-file",
            "/",
            r"/(?:[^\s:]{1,200}/)?(?P<pod>[a-z0-9][a-z0-9.-]{0,252})_[a-z0-9-]{1,63}_[a-z0-9-]{1,200}\.log:",
            _container,
        ),
        (
            "metaflow",
            "[",
            r"\[\d+/\w+/\d+ \(pid (?P<pid>\d{1,18})\)\] (?:\[[0-9a-f-]{36}\] )?",
            _log,
        ),
        (
            "deepspeed",
            "[",
            r"\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] \[(?P<level>[A-Z]+)\] "
            r"\[(?P<file>[\w.]+):\d+(?::[\w<>]+)?\] (?:\[Rank (?P<rank>-?\d{1,7})\] )?",
            _log,
        ),
        (
            "torch-logging-old",
            "[",
            r"\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\](?: \[[^\]]{1,80}\])? (?P<name>[\w.]+): \[(?P<level>[A-Z]+)\] ",
            _log,
        ),
        (
            "ray-cpp",
            "[",
            r"\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (?P<level>[DIWEC]) (?P<pid>\d{1,18}) \d+\](?: \(\w+\))? "
            r"(?P<file>[\w./]+):\d+: ",
            _log,
        ),
        (
            "sglang",
            "[",
            r"\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?)(?P<ranks>(?: (?:DP|PP|TP|EP|ATTN_CP|MOE_DP)\d+)+)\] ",
            _sglang,
        ),
        (
            "python-bracket",
            "[",
            r"\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})?)\]\s?\[(?P<name>[\w.\-]+)\]\s?\[(?P<level>[A-Z]+)\]\s?(?:-\s)?",
            _log,
        ),
        (
            "transformers",
            "[",
            r"\[(?P<level>[A-Z]+)\|(?P<file>[\w./]+):\d+\] (?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) >> ",
            _log,
        ),
        (
            "llamafactory",
            "[",
            r"\[(?P<level>[A-Z]+)\|(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] (?P<name>[\w.]+):\d+ >> ",
            _log,
        ),
        (
            "dmesg-time",
            "[",
            r"\[(?P<ts>(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2}\s+\d{1,2} \d\d:\d\d:\d\d \d{4})\] ",
            _stamp,
        ),
        ("dmesg", "[<", r"(?:<\d+>)?\[\s*\+?\d+\.\d{3,6}\](?:\[\s*[TC]\d+\])? ", _boot_time),
        (
            "fabricmanager",
            "[",
            r"\[(?P<ts>[A-Z][a-z]{2} \d{2} \d{4} \d\d:\d\d:\d\d)\] \[(?P<level>[A-Z]+)\] \[tid \d+\] ",
            _log,
        ),
        ("bracket-time", "[", r"\[(?P<ts>" + ISO_TS + r")\](?:[ :]{1,2}(?=\S)| )", _stamp),
        ("level-bracket", "[", r"\[" + _LEVELS + r"\] (?=\S)", _log),
        (
            "cri",
            "0123456789",
            r"(?P<ts>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) (?P<stream>stdout|stderr) [FP] ",
            _cri,
        ),
        (
            "syslog-iso",
            "0123456789",
            r"(?P<ts>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)) "
            # What Rust programs write there is a level (text-generation-inference's shards, for one).
            r"(?!(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL) )(?P<host>[A-Za-z][\w.-]*) "
            r"(?P<prog>(?![\w.]{0,120}(?:Error|Exception|Interrupt|Warning): )[A-Za-z][\w./-]*)(?:\[(?P<pid>\d{1,18})\])?: ",
            _syslog,
        ),
        (
            "ray-python",
            "0123456789",
            r"(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\s(?P<level>[A-Z]+) (?:\(\w+\) )?(?P<file>[\w.]+):\d+ -- ",
            _log,
        ),
        (
            "python-dash",
            "0123456789",
            r"(?P<ts>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?) ?[-|] ?(?P<name>[\w.\-]+) ?[-|] ?"
            + _LEVELS
            + r" ?[-|] ?",
            _log,
        ),
        (
            "loguru",
            "0123456789",
            r"(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?) \| "
            + _LEVELS
            + r"\s*\| (?P<name>[\w.<>]+)(?::[\w<>]+:\d+)? [-|] ",
            _log,
        ),
        (
            "python-level",
            "0123456789",
            r"(?P<ts>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?) ?-? ?\[?"
            + _LEVELS
            + r"\]?:?(?: - [A-Za-z_][\w.]{0,60} -| -| \[(?!(?i:rank))[\w.<>]+\])? ",
            _log,
        ),
        (
            "hf-example",
            "0123456789",
            r"(?P<ts>\d\d/\d\d/\d{4} \d\d:\d\d:\d\d) - (?P<level>[A-Z]+) - (?P<name>[\w.]+) - ",
            _log,
        ),
        (
            "mmengine",
            "0123456789",
            r"(?P<mmdd>\d\d/\d\d) (?P<time>\d\d:\d\d:\d\d) - (?P<name>[\w.]+) - (?P<level>[A-Z]+) - ",
            _log,
        ),
        (
            # torch_xla.distributed.xla_dist: the address and the number of the client worker that speaks.
            "xla-dist",
            "0123456789",
            r"(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})?) (?P<ip>\d{1,3}(?:\.\d{1,3}){3}) \[\d{0,6}\] ",
            _xla_worker,
        ),
        # One blank, as what follows may be indented.
        ("stamp", "0123456789", r"(?P<ts>" + ISO_TS + r"):?\s(?=\s{0,200}\S)", _stamp),
        (
            "syslog",
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
            r"(?P<ts>[A-Z][a-z]{2}\s+\d{1,2} \d\d:\d\d:\d\d)(?:\.\d{1,9})? (?P<host>[\w.:-]*\w) (?P<prog>[^\s:\[]+)(?:\[(?P<pid>\d{1,18})\])?: ",
            _syslog,
        ),
        # moreutils' ts, when it is told no format; exactly one blank, as what follows may be indented.
        (
            "ts",
            "ADFJMNOS",
            r"(?P<ts>(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d) (?!\d{4}\b)",
            _stamp,
        ),
        ("elapsed", "[", r"\[\s{0,8}\d{1,9}\.\d{1,6} ?s\] ", lambda match, context: None),
        (
            "syslog-5424",
            "<",
            r"<\d{1,3}>1 (?P<ts>\S+) (?P<host>\S+) (?P<prog>\S+) (?:(?P<pid>\d{1,18})|\S+) \S+ (?:-|\[[^\]]*\]) ?",
            _syslog,
        ),
        (
            "vllm-log",
            "DIWEC",
            _LEVELS + r" (?P<mmdd>\d\d-\d\d) (?P<time>\d\d:\d\d:\d\d) \[(?P<file>[\w./]+):\d+\] ?",
            _log,
        ),
        (
            "vllm-log-old",
            "DIWEC",
            _LEVELS + r" (?P<mmdd>\d\d-\d\d) (?P<time>\d\d:\d\d:\d\d) (?P<file>[\w.]+\.py):\d+\] ?",
            _log,
        ),
        ("python-default", "DIWEC", _LEVELS + r":(?P<name>[A-Za-z_][\w.\-]*):(?! )", _log),
        (
            "glog",
            "CDEFIVW",
            r"(?P<level>[CEWIVDF])(?P<mmdd>\d{4}) (?P<time>\d\d:\d\d:\d\d\.\d+)\s+(?P<pid>\d{1,18}) (?P<file>[\w./-]+):\d+\]"
            r"(?: \[\d+/\d+\])? ",
            _log,
        ),
        ("rank-colon", "rR", r"(?i:rank) ?(?P<rank>\d{1,6})(?:/(?P<world>\d{1,7}))?: (?=\S)", _rank),
        ("wandb", "w", r"wandb: ", lambda match, context: None),
    )
)


@lru_cache(maxsize=512)
def certain(first: str) -> tuple[tuple[str, re.Pattern[str], Handler], ...]:
    """Return the prefixes that may begin with a character, in the order in which they are tried."""
    return tuple((name, pattern, handler) for name, starts, pattern, handler in _CERTAIN if first and first in starts)
