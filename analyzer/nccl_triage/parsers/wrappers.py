"""Peel the prefixes that launchers, collectors and loggers put around a message, in any nesting.

``peel`` takes one physical line and returns the message and the context that the prefixes carried. Headers of
the programs whose lines we diagnose (NCCL's ``host:pid:tid [dev] NCCL WARN``, c10's ``[E1206 .. file.cpp:607]``)
are read but stay in the message, because signatures speak of them.

Some prefixes look like ordinary text (``3: ``, ``node1: ``, ``[2] ``). They count only when the source as a
whole uses them: ``WrapperProfile.sniff`` decides that once per source.

Grammars: Ray ``_private/ray_logging.py``, torchelastic ``multiprocessing/tail_log.py``, Slurm ``srun --label``,
Open MPI ``--tag-output``, Docker json-file, Kubernetes CRI, vLLM ``logger.py``, DeepSpeed ``utils/logging.py``.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from nccl_triage.events import Context
from nccl_triage.parsers import headers, times
from nccl_triage.parsers.jsonlines import peel_json

#: Prefixes peeled from one line at most; real lines carry six or seven.
MAX_LAYERS = 16

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]")
# Copies from web consoles lose the ESC byte: `[36m(Actor pid=1) ...`.
_LOST_ANSI = re.compile(r"^(?:\[\d{1,2}(?:;\d{1,2})*m)+")
_INNER_LOST_ANSI = re.compile(r"\[\d{1,2}(?:;\d{1,2})*m(?=\s|$|\()")


@dataclass(slots=True)
class Peeled:
    """A line without its wrappers. ``extra`` holds further lines that were packed inside (JSON ``exc_info``)."""

    text: str
    context: Context
    wrappers: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)


Handler = Callable[[re.Match[str], Context], None]


def _set_host(context: Context, host: str | None) -> None:
    """Keep the outermost host, as inner ones may be container ids."""
    if host and context.host is None:
        context.host = host


def _set_time(context: Context, time: float | None) -> None:
    """Keep the innermost stamp: it is the one that the program itself printed."""
    if time is not None:
        context.time = time


def _ray(match: re.Match[str], context: Context) -> None:
    context.actor = match["name"] or context.actor
    context.pid = int(match["pid"])
    if match["ip"]:
        context.address = match["ip"]
    context.program = context.program or "ray"
    rank = re.search(r"rank=(\d+)", match["name"] or "")
    if rank:
        context.rank = int(rank[1])


def _raylet(match: re.Match[str], context: Context) -> None:
    context.actor = match["comp"]
    context.program = "ray"
    if match["ip"]:
        context.address = match["ip"]


def _vllm_process(match: re.Match[str], context: Context) -> None:
    context.actor = match["proc"].split(" ")[0]
    context.pid = int(match["pid"])
    context.program = "vllm"
    rank = re.search(r"rank=(\d+)", match["proc"])
    if rank:
        context.rank = int(rank[1])


def _tee(match: re.Match[str], context: Context) -> None:
    context.local_rank = int(match["local"])


def _similar(match: re.Match[str], context: Context) -> None:
    context.repeated = int(match["n"]) - 1


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


def _mpi_host(match: re.Match[str], context: Context) -> None:
    _set_host(context, match["host"])
    context.pid = int(match["pid"])


def _container(match: re.Match[str], context: Context) -> None:
    _set_host(context, match["pod"])


def _stamp(match: re.Match[str], context: Context) -> None:
    _set_time(context, times.from_stamp(match["ts"]))


def _log(match: re.Match[str], context: Context) -> None:
    part = match.groupdict()
    if part.get("ts"):
        _set_time(context, times.from_stamp(part["ts"]))
    elif part.get("mmdd"):
        _set_time(context, times.from_month_day(part["mmdd"], part["time"]))
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
    _set_time(context, times.from_stamp(match["ts"]))
    _set_host(context, match["host"])
    context.program = match["prog"]
    if match["pid"]:
        context.pid = int(match["pid"])


def _boot_time(match: re.Match[str], context: Context) -> None:
    context.program = "kernel"


def _cri(match: re.Match[str], context: Context) -> None:
    _set_time(context, times.from_stamp(match["ts"]))
    context.stream = match["stream"]


def _sglang(match: re.Match[str], context: Context) -> None:
    _set_time(context, times.from_stamp(match["ts"]))
    context.program = "sglang"
    rank = re.search(r"\bTP(\d+)", match["ranks"] or "")
    if rank:
        context.group_rank = int(rank[1])


_LEVELS = r"(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|SUCCESS|TRACE)"
_ISO_TS = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_ADDRESS = r"[0-9A-Fa-f.:]+"

#: Prefixes that cannot be mistaken for text: (name, first characters or None, pattern, handler).
_CERTAIN: tuple[tuple[str, str | None, re.Pattern[str], Handler], ...] = tuple(
    (name, first, re.compile(pattern), handler)
    for name, first, pattern, handler in (
        (
            "vllm-process",
            "(",
            r"\((?P<proc>EngineCore(?:_(?:DP)?\d+)?|DPEngineCoreActor\w*|VllmWorkerProcess|VllmWorker(?:-\d+)?"
            r"(?: rank=\d+| TP\d+[\w ]*)?|Worker(?:_\w+)?|RayWorkerProc\w*|APIServer|ApiServer_\d+|DPCoordinator"
            r"|Process-\d+|SpawnProcess-\d+|MainProcess) pid=(?P<pid>\d+)\) ?",
            _vllm_process,
        ),
        (
            "ray",
            "(",
            r"\((?:(?P<name>[^\s()][^()]{0,120}?(?:\([^()]{0,80}\))?) )?pid=(?P<pid>\d+)(?:, ip=(?P<ip>"
            + _ADDRESS
            + r"))?\) ?",
            _ray,
        ),
        ("ray-daemon", "(", r"\((?P<comp>raylet|gcs_server)(?:, ip=(?P<ip>" + _ADDRESS + r"))?\) ?", _raylet),
        (
            "ray-autoscaler",
            "(",
            r"\((?P<comp>autoscaler) \+(?:\d+h)?(?:\d+m)?(?:\d+s)?(?:, ip=(?P<ip>" + _ADDRESS + r"))?\) ?",
            _raylet,
        ),
        ("monarch", "[", r"\[(?P<n>[1-9]\d{0,5}) similar log lines\] ", _similar),
        ("torch-rank", "[", r"\[rank(?P<rank>\d{1,6})\](?:: ?| )", _rank),
        ("rank-of-world", "[", r"\[(?i:rank)[ :=]{1,2}(?P<rank>\d{1,6})(?:/(?P<world>\d+))?\]:? ?", _rank),
        ("torchelastic-tee", "[", r"\[(?!rank)(?P<role>[A-Za-z_][A-Za-z_-]{0,40})(?P<local>\d{1,4})\]:", _tee),
        (
            "mpi-tag",
            "[",
            # Open MPI: [job,rank]<stream>:  Horovod: [rank]<stream>:
            r"\[(?:(?:[\w.@-]*@)?\d+,)?(?P<rank>\d+)\]<(?P<stream>stdout|stderr|stddiag)>: ?",
            _mpi_tag,
        ),
        (
            # horovodrun --prefix-output-with-timestamp
            "horovod-timed",
            "MTWFS",
            r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\[(?P<rank>\d+)\]<(?P<stream>stdout|stderr)>: ?",
            _mpi_tag,
        ),
        ("mpi-host", "[", r"\[(?P<host>[A-Za-z][\w.-]*):(?P<pid>\d+)\] (?=\S)", _mpi_host),
        ("kubectl", "[", r"\[pod/(?P<pod>[a-z0-9.-]+)/(?P<container>[a-z0-9-]+)\] ", _container),
        (
            "metaflow",
            "[",
            r"\[\d+/\w+/\d+ \(pid (?P<pid>\d+)\)\] (?:\[[0-9a-f-]{36}\] )?",
            _log,
        ),
        (
            "deepspeed",
            "[",
            r"\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] \[(?P<level>[A-Z]+)\] "
            r"\[(?P<file>[\w.]+):\d+(?::[\w<>]+)?\] (?:\[Rank (?P<rank>-?\d+)\] )?",
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
            r"\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (?P<level>[DIWEC]) (?P<pid>\d+) \d+\](?: \(\w+\))? "
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
        ("bracket-time", "[", r"\[(?P<ts>" + _ISO_TS + r")\][ :]{1,2}(?=\S)", _stamp),
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
            r"(?P<ts>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)) (?P<host>[A-Za-z][\w.-]*) "
            r"(?P<prog>[A-Za-z][\w./-]*)(?:\[(?P<pid>\d+)\])?: ",
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
        ("stamp", "0123456789", r"(?P<ts>" + _ISO_TS + r"):?\s+(?=\S)", _stamp),
        (
            "syslog",
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
            r"(?P<ts>[A-Z][a-z]{2}\s+\d{1,2} \d\d:\d\d:\d\d) (?P<host>\S+) (?P<prog>[^\s:\[]+)(?:\[(?P<pid>\d+)\])?: ",
            _syslog,
        ),
        (
            "syslog-5424",
            "<",
            r"<\d{1,3}>1 (?P<ts>\S+) (?P<host>\S+) (?P<prog>\S+) (?:(?P<pid>\d+)|\S+) \S+ (?:-|\[[^\]]*\]) ?",
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
            r"(?P<level>[CEWIVDF])(?P<mmdd>\d{4}) (?P<time>\d\d:\d\d:\d\d\.\d+)\s+(?P<pid>\d+) (?P<file>[\w./-]+):\d+\]"
            r"(?: \[\d+/\d+\])? ",
            _log,
        ),
        ("rank-colon", "rR", r"(?i:rank) ?(?P<rank>\d{1,6})(?:/(?P<world>\d{1,7}))?: (?=\S)", _rank),
        ("wandb", "w", r"wandb: ", lambda match, context: None),
    )
)

_DEDUP = re.compile(r"\s*\[repeated (?P<n>\d+)x across cluster\](?: \(Ray deduplicates logs by default\.[^\n]*\))?\s*$")

# Prefixes that look like ordinary text: believed only when most lines of the source carry them.
_SRUN = re.compile(r"(?:P\d+\s)?\s{0,5}(?P<task>\d{1,6}): ?")
_NODE = re.compile(r"(?P<node>(?:[A-Za-z][\w.-]{0,62}|\d{1,3}(?:\.\d{1,3}){3})): (?=\S|\s|$)")
_MPICH = re.compile(r"\[(?P<rank>\d{1,7})\] (?=\S)")
_STERN = re.compile(
    r"(?P<pod>[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?-(?:\d+|[a-z0-9]{5})) (?P<container>[a-z][a-z0-9-]*) (?=\S)"
)
_COMPOSE = re.compile(r"(?P<service>[A-Za-z][\w.-]*)\s*\| ?")
_NOT_A_NODE = re.compile(
    r"(?:.*(?:Error|Exception|Warning|Interrupt|Exit)|WARNING|INFO|ERROR|DEBUG|Traceback|note|error|warning|fatal"
    r"|srun|slurmstepd|slurmd|kernel|wandb|python\d?|bash|sh|File|Killed|Aborted|NOTE|Epoch|Train|Training|time|loss|step|Note"
    r"|HINT|Loading|Running|Episode|Map|Downloading|Librccl|Hostname|what|what\(\)|torch\S*|ray\.\S*|name|ip|pid|host|rank)$"
)


@dataclass(slots=True)
class WrapperProfile:
    """Which of the ambiguous prefixes a source really uses."""

    srun: bool = False
    node: bool = False
    nodes: frozenset[str] = frozenset()
    rank_column: bool = False
    number_column: bool = False
    stern: bool = False
    compose: bool = False

    @classmethod
    def sniff(cls, lines: Iterable[str]) -> WrapperProfile:
        """Look at the first lines of a source and decide."""
        sample = [_strip_ansi(line) for line in lines]
        sample = [line for line in sample if line.strip()]
        if not sample:
            return cls()
        half = max(2, len(sample) // 2)
        profile = cls()
        tasks = [m["task"] for line in sample if (m := _SRUN.match(line))]
        profile.srun = len(tasks) > half and len(set(tasks)) <= max(1, len(tasks) * 2 // 3)
        nodes = Counter(m["node"] for line in sample if (m := _NODE.match(line)) and not _NOT_A_NODE.match(m["node"]))
        repeated = {name: n for name, n in nodes.items() if n > 1}
        if repeated and sum(repeated.values()) > len(sample) * 0.4:
            profile.node, profile.nodes = True, frozenset(nodes)
        numbers = [int(m["rank"]) for line in sample if (m := _MPICH.match(line))]
        if len(numbers) > half:
            rising = all(a < b for a, b in itertools.pairwise(numbers))
            profile.number_column = rising and len(numbers) > 2
            profile.rank_column = not rising and len(set(numbers)) <= len(numbers) * 2 // 3
        profile.stern = sum(1 for line in sample if _STERN.match(line)) > max(2, len(sample) * 2 // 3)
        profile.compose = sum(1 for line in sample if _COMPOSE.match(line)) > max(2, len(sample) * 2 // 3)
        return profile


_PLAIN = WrapperProfile()


def _strip_ansi(line: str) -> str:
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if line.startswith("[") and "m" in line[:12]:
        stripped = _LOST_ANSI.sub("", line)
        if stripped != line:
            line = _INNER_LOST_ANSI.sub("", stripped)
    return line


def _ambiguous(line: str, profile: WrapperProfile, context: Context, seen: set[str]) -> tuple[str, int] | None:
    """Try the prefixes that the profile allows, each once per line."""
    if profile.srun and "srun" not in seen and (match := _SRUN.match(line)):
        # SLURM_PROCID is the global rank when there is one task per GPU; identity checks it later.
        context.group_rank = int(match["task"])
        return "srun", match.end()
    if profile.node and "node" not in seen and (match := _NODE.match(line)) and match["node"] in profile.nodes:
        name = match["node"]
        if name[0].isdigit():
            context.address = context.address or name
        else:
            _set_host(context, name)
        return "node", match.end()
    if profile.rank_column and "column" not in seen and (match := _MPICH.match(line)):
        context.rank = int(match["rank"])
        return "column", match.end()
    if profile.number_column and "column" not in seen and (match := _MPICH.match(line)):
        return "column", match.end()
    if profile.stern and "stern" not in seen and (match := _STERN.match(line)):
        _set_host(context, match["pod"])
        return "stern", match.end()
    if profile.compose and "compose" not in seen and (match := _COMPOSE.match(line)):
        _set_host(context, match["service"])
        return "compose", match.end()
    return None


def peel(line: str, profile: WrapperProfile = _PLAIN) -> Peeled:
    """Return the message of a line and the context that its prefixes carried."""
    text = _strip_ansi(line.rstrip("\r\n"))
    peeled = Peeled(text=text, context=Context())
    context, seen = peeled.context, set[str]()
    for _ in range(MAX_LAYERS):
        if not text:
            break
        first = text[0]
        if first == "{":
            unpacked = peel_json(text, context)
            if unpacked is None:
                break
            peeled.wrappers.append("json")
            text, *extra = unpacked
            peeled.extra.extend(extra)
            continue
        ambiguous = _ambiguous(text, profile, context, seen)
        if ambiguous is not None:
            seen.add(ambiguous[0])
            peeled.wrappers.append(ambiguous[0])
            text = text[ambiguous[1] :]
            continue
        stripped = text.lstrip(" ") if first == " " else text
        for name, starts, pattern, handler in _CERTAIN:
            if starts is not None and (not stripped or stripped[0] not in starts):
                continue
            match = pattern.match(stripped)
            if match is not None:
                handler(match, context)
                peeled.wrappers.append(name)
                text = stripped[match.end() :]
                break
        else:
            break
    repeated = _DEDUP.search(text) if text.endswith((")", "]")) or "repeated" in text[-400:] else None
    if repeated is not None:
        context.repeated = int(repeated["n"])
        text = text[: repeated.start()]
    headers.read(text, context)
    peeled.text = text
    return peeled
