"""What the path of a log says about who wrote it: rank, host, pid, attempt, stream.

To add a layout, add one ``_rule`` to ``RULES``: its named groups are fields of ``SourceInfo``. The first rule
that matches names the layout; ``DETAILS`` then fill fields that it left open. A wrong rank is worse than
none: a number that may be a job, a step, a restart or a run is no rank, and where only the neighbours can
tell, the rule carries a check that asks them.

Sources: torchelastic ``multiprocessing/api.py`` and ``errors``; Ray ``_private/node.py`` and
``log_monitor.py``; ``srun(1)``, "filename pattern"; submitit ``slurm/slurm.py``; NCCL ``src/debug.cc``
(``NCCL_DEBUG_FILE``); kubelet ``/var/log/pods``; torch ``FlightRecorder`` (``TORCH_FR_DUMP_TEMP_FILE``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.store import SourceInfo

#: Stands for any digit in ``Rule.needs``.
DIGIT = "#"
_COMPRESSED = lazily(r"\.(?:gz|zst|zstd|xz|bz2)$", re.I)
#: Endings of logs, any number of them: ``rank0.err.log``.
END = r"(?:[._-](?:log|txt|out|err|stdout|stderr|output|error))*$"
_END = lazily(END, re.I)
#: No cluster of today has more processes; job and process ids are larger.
_MAX_RANK = 1 << 16


def strip_compression(name: str) -> str:
    """Return a file name without the ending that a compression program added."""
    return _COMPRESSED.sub("", name)


class Siblings:
    """The names of the files of one folder, indexed for the rules that need to see more than one name."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = [strip_compression(name) for name in names]
        self._numbers: dict[str, dict[str, set[int]]] = {}

    def numbers(self, rule: Rule, match: re.Match[str]) -> set[int]:
        """Return the ranks in the names that differ from the matched one in nothing else."""
        known = self._numbers.get(rule.expression)
        if known is None:
            known = {}
            pattern = rule.pattern
            for name in self._names:
                found = pattern.search(name)
                if found:
                    known.setdefault(_skeleton(found), set()).add(int(found["rank"]))
            self._numbers[rule.expression] = known
        return known.get(_skeleton(match), set()) | {int(match["rank"])}


Check = Callable[["Rule", "re.Match[str]", Siblings], bool]


class Rule(NamedTuple):
    """A layout and the path that shows it.

    ``needs`` is text without which the rule cannot match, or ``DIGIT``: patterns take half a millisecond each to
    compile, and most names need few of them. ``check`` may ask the other files of the folder.
    """

    layout: str
    needs: str
    expression: str
    check: Check | None = None

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled expression."""
        return _compiled(self.expression)

    def search(self, path: str, siblings: Siblings) -> re.Match[str] | None:
        """Return the match when the rule holds for the path."""
        if self.needs == DIGIT:
            if not any(letter.isdigit() for letter in path):
                return None
        elif self.needs not in path.lower():
            return None
        match = self.pattern.search(path)
        if match is None or (self.check is not None and not self.check(self, match, siblings)):
            return None
        return match


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return lazily(expression, re.I)


def _skeleton(match: re.Match[str]) -> str:
    """Return the file name without its rank, its host and its ending."""
    text = match.string
    groups = match.groupdict()
    for start, end in sorted((match.span(g) for g in ("rank", "host") if groups.get(g)), reverse=True):
        text = f"{text[:start]}#{text[end:]}"
    return _END.sub("", text.rsplit("/", 1)[-1])


def _are_ranks(numbers: set[int]) -> bool:
    """Tell whether these numbers can be the ranks of a job or of one of its nodes, not jobs or dates."""
    low, high, count = min(numbers), max(numbers), len(numbers)
    if count < 2 or high >= _MAX_RANK:
        return False
    if low == 0:
        # Some files may be missing.
        return high < 4 * count + 8
    # The second of several nodes: 8 to 15.
    return count >= 4 and high - low == count - 1 and low % count == 0


def siblings_are_ranks(rule: Rule, match: re.Match[str], siblings: Siblings) -> bool:
    """Accept the number when there is a file for each of several ranks."""
    return _are_ranks(siblings.numbers(rule, match))


def alone_or_ranks(rule: Rule, match: re.Match[str], siblings: Siblings) -> bool:
    """Accept the number unless files beside it show that it counts something else."""
    numbers = siblings.numbers(rule, match)
    return (len(numbers) == 1 and max(numbers) < _MAX_RANK) or _are_ranks(numbers)


#: Path components looked at: torchrun's layout needs four, with folders of its run and its node above.
DEPTH = 6
#: The layout of Ray's daemons that only watch a cluster: no job needs them.
RAY_HELPER = "ray-helper"
#: The layout of what is no log although it names a rank.
FLIGHT_RECORDER = "flight-recorder"
_DUMP = "trace_rank"

#: Words of a file name that say nothing about its content.
_NEUTRAL = (
    r"\d+|of|log|logs|txt|out|err|stdout|stderr|output|console|train|trainer|training|worker|proc|process"
    r"|job|run|slurm|nccl|debug|info|trace|torch|pytorch|torchrun|global|local|rank\d*|pid\d*|ip"
    r"|(?:gpu|cpu|compute)?node\d*|host\d*|gpu\d*|dgx\d*|hgx\d*|nid\d+|cn\d+|srv\d*|server\d*"
)
_EXT = r"\.(?:log|txt|out|err|stdout|stderr|output|error)(?:\.(?:log|txt))?$"
_RANK = r"(?P<rank>\d{1,5})(?!\d)"
#: Words before "rank" that make it another rank than the global one.
_OTHER_RANK = (
    "local", "node", "group", "machine", "host", "data", "tensor", "pipeline", "expert", "model",
    "dp", "tp", "pp", "ep", "cp", "sp", "mp", "lora", "low",
)  # fmt: skip
_NOT_OTHER = "".join(f"(?<!{word}[._-])" for word in _OTHER_RANK)
_GLOBAL = rf"(?:global[._-]?|(?<![a-z]){_NOT_OTHER})rank[._-]?{_RANK}"
#: A job of Slurm; neither a year nor a date.
_JOB = r"(?!(?:19|20)\d\d(?:\d{4})?(?!\d))\d{4,}"
_HOST = r"(?P<host>[a-z][a-z0-9]*(?:[.-][a-z0-9]+)*?(?<=\d))"
#: Names that hosts of clusters have, for places where other names stand as well. "gpu3" is a device.
_KNOWN_HOST = (
    r"(?P<host>(?:[a-z0-9]+-)*(?:(?:gpu|cpu|compute)?node|host|dgx|hgx|nid|cn|srv|server)"
    r"(?:-[a-z0-9]+)*?[._-]?\d+"
    r"|gpu(?:0\d|\d{3,}|-\d+)|ip(?:-\d{1,3}){4}|\d{1,3}(?:\.\d{1,3}){3})"
)
_REPORT = (
    r"dmesg|kern(?:el)?|journal(?:ctl)?|syslog|messages|nvidia-smi(?:-(?:q|x|xml|topo|nvlink|p2p))?|topo|dcgmi(?:-diag)?"
    r"|ibstat|ibdev2netdev|ibv_devinfo|rdma-link|lspci|perfquery"
)
_REPORT_END = r"\.(?:log|txt|out|output|json|xml)"
_POD_ROLE = r"(?:master|worker|launcher|head|chief|trainer|ps|replica|node)"
_POD_HASH = r"[bcdfghjklmnpqrstvwxz2456789]{5}"


def _rule(layout: str, needs: str, expression: str, check: Check | None = None) -> Rule:
    return Rule(layout, needs, f"(?:^|/){expression}", check)


def _speaks_for_itself(rule: Rule, match: re.Match[str], siblings: Siblings) -> bool:
    """Tell ``trainer_rank_3_of_8.log`` from ``stuck_rank3_w8.log``, which may be the log of all ranks.

    Names that say more than who wrote them are believed when there is one for each of several ranks; that of
    a low-rank adapter (``lora_rank16.log``) never.
    """
    words = [word for word in re.split(r"[._-]+", f"{match['before']}.{match['after']}".lower()) if word]
    if any(re.match(r"lora|adapter|alpha", word) for word in words):
        return False
    return all(re.fullmatch(_NEUTRAL, word) for word in words) or siblings_are_ranks(rule, match, siblings)


def _host_has_number(rule: Rule, match: re.Match[str], siblings: Siblings) -> bool:
    """Tell ``nccl_gpu07_4120.log`` from ``nccl_allreduce_1024.log``."""
    return match["host"] == "localhost" or any(letter.isdigit() for letter in match["host"])


RULES: tuple[Rule, ...] = (
    _rule(
        "torchrun",
        "attempt_",
        r"attempt_(?P<attempt>\d+)/(?P<local_rank>\d+)/(?:(?P<stream>stdout|stderr)\.log|error\.json)$",
    ),
    _rule("torchrun", "attempt_", r"attempt_(?P<attempt>\d+)/filtered_(?P<stream>stdout|stderr)\.log$"),
    _rule(
        "ray-worker",
        "worker-",
        r"worker-[0-9a-f]{8,}-[0-9a-f]{4,}-(?P<pid>\d+)\.(?P<stream>out|err)(?:\.\d+)?$",
    ),
    _rule(
        "ray-core-worker",
        "python-core-",
        r"python-core-(?:worker|driver)-[0-9a-f-]+_(?P<pid>\d+)\.log(?:\.\d+)?$",
    ),
    # What ``nccl_triage.integrations`` saves in ranks that fail.
    _rule(
        "rank-file",
        "nccl-triage",
        rf"nccl-triage-(?:(?P<host>[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)-)?rank{_RANK}(?:-\d{{1,3}})?\.log$",
    ),
    _rule("rank-file", "nccl-triage", r"nccl-triage-[^/]+\.(?:log|txt)$"),
    _rule("ray-raylet", "raylet", r"raylet\.(?P<stream>out|err)(?:\.\d+)?$"),
    _rule("ray-gcs", "gcs_server", r"gcs_server\.(?P<stream>out|err)(?:\.\d+)?$"),
    _rule("ray-driver", "job-driver-", r"job-driver-[^/]+\.log$"),
    _rule(
        RAY_HELPER,
        "",
        r"(?:monitor|log_monitor|dashboard(?:_\w+)?)\.(?:log|(?P<stream>out|err))(?:\.\d+)?$",
    ),
    _rule(
        "ray-component",
        "",
        r"(?:runtime_env_(?:agent|setup-[^/]+)|ray_client_server[^/]*|agent-\d+|event_[A-Z_]+)"
        r"\.(?:log|(?P<stream>out|err))(?:\.\d+)?$",
    ),
    _rule(FLIGHT_RECORDER, _DUMP, rf"[^/]*{_DUMP}_?{_RANK}(?:\.(?:json|pkl|pickle|bin))?$"),
    # As the advice of the causes has stacks saved: stack.HOST.PID; with the rank, as ``hang`` saves them.
    _rule(
        "stacks",
        "stack.",
        r"stack\.(?!(?:trace|dump|rank)s?[._-])(?P<host>(?=[0-9.-]*[a-z])[a-z0-9]+(?:[.-][a-z0-9]+)*)\.(?P<pid>\d{2,8})"
        r"(?:\.rank(?P<rank>\d{1,6}))?(?:\.(?:txt|log))?$",
    ),
    _rule("kubernetes", DIGIT, r"[^/_]+_(?P<host>[a-z0-9.-]+)_[0-9a-f-]{32,36}/[^/]+/(?P<attempt>\d+)\.log$"),
    _rule("kubernetes", DIGIT, r"(?P<host>[a-z0-9.-]+)_[a-z0-9.-]+_[a-z0-9.-]+-[0-9a-f]{64}\.log$"),
    _rule("docker", "-json.log", r"[0-9a-f]{64}-json\.log(?:\.\d+)?$"),
    # Logs and reports of a host that people save as "dmesg.$(hostname).log"; "kern.log.1" is a rotated file.
    _rule("host-report", "", rf"(?:{_REPORT})[._-](?!log[._-]?\d){_HOST}(?:{_REPORT_END})?$"),
    _rule("host-report", "", rf"{_HOST}[._-](?:{_REPORT})(?:{_REPORT_END})?$"),
    _rule("rank-file", "rank", rf"(?P<before>[^/]*?){_GLOBAL}(?P<after>[^/]*)$", _speaks_for_itself),
    _rule("rank-folder", "rank", rf"(?:global[._-]?)?rank[._-]?{_RANK}/(?:[^/]+/)?[^/]+$"),
    _rule("slurm", "_log.", rf"\d{{2,}}_(?:\d+_)?{_RANK}_log\.(?P<stream>out|err)$"),
    _rule("slurm", "slurm-", r"slurm-\d+(?:_\d+)?(?:\.(?:out|err|log))?$"),
    _rule("slurm", DIGIT, rf"(?:[^/]*?[._-])?{_JOB}[._-]{_KNOWN_HOST}[._-]{_RANK}{END}"),
    _rule("slurm", DIGIT, rf"(?:[^/]*?[._-])?{_JOB}[._-]{_KNOWN_HOST}{_EXT}"),
    # A host in front of the number must end with a digit, or the number is the host's own.
    _rule("slurm", DIGIT, rf"(?:[^/]*?[._-])?{_JOB}[._-]{_HOST}[._-]{_RANK}{END}", siblings_are_ranks),
    # Not "4711.0.out": that number is a step.
    _rule("slurm", DIGIT, rf"{_JOB}[_-]{_RANK}{_EXT}", alone_or_ranks),
    _rule("slurm", DIGIT, rf"(?!slurm-)(?:[^/]*?[._-])?\d{{3,}}[_-]{_RANK}{_EXT}", siblings_are_ranks),
    _rule(
        "nccl-debug-file",
        "nccl",
        r"nccl[._-]?(?:(?:debug|log|trace|info|warn)[._-])*(?P<host>[a-z][a-z0-9-]*)"
        rf"[._-](?P<pid>\d{{1,7}}){END}",
        _host_has_number,
    ),
    _rule("nccl-debug-file", "nccl", rf"nccl\.(?:(?:debug|log)\.)?(?P<pid>\d{{2,7}}){END}"),
    _rule("rank-file", "worker", rf"worker[._-]?{_RANK}{END}", alone_or_ranks),
    _rule("rank-file", DIGIT, rf"(?:trainer|task|proc|process)[._-]?{_RANK}{END}", siblings_are_ranks),
    _rule("rank-file", DIGIT, rf"(?:gpu|cuda|device)[._-]?(?P<local_rank>\d){END}"),
    _rule(
        "kubernetes",
        "-",
        rf"(?P<host>[a-z0-9][a-z0-9-]*-{_POD_ROLE}-(?:\d+|{_POD_HASH}))(?:[_.][a-z0-9-]+)?{_EXT}",
    ),
    _rule(
        "kubernetes",
        "-",
        rf"(?P<host>[a-z0-9][a-z0-9-]*-[0-9a-f]{{8,10}}-{_POD_HASH})(?:[_.][a-z0-9-]+)?{_EXT}",
    ),
    _rule("rank-file", DIGIT, rf"{_RANK}{_EXT}", siblings_are_ranks),
    _rule("rank-file", DIGIT, rf"(?:log|out|err|stdout|stderr|output)\.{_RANK}$", siblings_are_ranks),
    _rule("rank-file", DIGIT, rf"{_KNOWN_HOST}[._-]{_RANK}{_EXT}", siblings_are_ranks),
    _rule("host-file", DIGIT, rf"{_KNOWN_HOST}{_EXT}"),
)

#: What any layout may have besides.
DETAILS: tuple[Rule, ...] = (
    # Not "timed_out.log".
    Rule(
        "stream",
        "",
        r"(?:(?:^|[/._-])(?P<stream>stdout|stderr)|(?:^|[/.])(?P<stream2>out|err))(?:\.(?:log|txt))?$",
    ),
    Rule("rank", "local", r"(?:^|[/._-])local[._-]?rank[._-]?(?P<local_rank>\d{1,3})(?!\d)[^/]*$"),
    Rule("pid", "pid", r"(?:^|[/._-])pid[._-]?(?P<pid>\d+)[^/]*$"),
    Rule("host", "rank", rf"(?:^|[/._]){_KNOWN_HOST}[._-](?:global[._-]?|local[._-]?)?rank[._-]?\d[^/]*$"),
    Rule(
        "host",
        "rank",
        rf"rank[._-]?\d{{1,5}}[._-](?:host[._-]?)?{_KNOWN_HOST}(?:[._-](?P<pid>\d+))?{END}",
    ),
    Rule("host", DIGIT, rf"(?:^|/){_KNOWN_HOST}/"),
    Rule("attempt", "", r"(?:^|/)(?:attempt|restart)[._-]?(?P<attempt>\d+)(?:/|[._-])"),
)

_STREAMS = {"out": "stdout", "err": "stderr"}


def _fill(info: SourceInfo, fields: dict[str, str | None]) -> None:
    for name, value in fields.items():
        if value is None or name in ("before", "after"):
            continue
        if name.startswith("stream"):
            info.stream = info.stream or _STREAMS.get(value.lower(), value.lower())
        elif getattr(info, name) is None:
            setattr(info, name, value if name == "host" else int(value))


def read_path(path: str, siblings: Siblings | None = None) -> SourceInfo:
    """Return what a path (slashes between its parts) says; ``siblings`` are the files of the same folder."""
    info = SourceInfo(path=path)
    text = strip_compression("/".join(path.split("/")[-DEPTH:]))
    siblings = siblings or Siblings()
    for rule in RULES:
        match = rule.search(text, siblings)
        if match:
            info.layout = rule.layout
            _fill(info, match.groupdict())
            break
    for detail in DETAILS:
        match = detail.search(text, siblings)
        if match:
            _fill(info, match.groupdict())
    return info


def settle(infos: Sequence[SourceInfo]) -> None:
    """Take back what only a look at all sources shows to be wrong.

    The same rank on two hosts is a local rank (``node0_rank3``, ``node1_rank3``). Slurm's task number is the
    rank when every GPU has a task; with one task on each of several hosts it may be the node's number.
    """
    hosts: dict[tuple[object, ...], set[str]] = {}
    tasks: Counter[str] = Counter()
    seen: set[tuple[str, int]] = set()
    for info in infos:
        if info.rank is None or info.host is None:
            continue
        hosts.setdefault((info.layout, info.rank, info.stream, info.attempt), set()).add(info.host)
        if info.layout == "slurm" and (info.host, info.rank) not in seen:
            seen.add((info.host, info.rank))
            tasks[info.host] += 1
    repeated = {key[0] for key, names in hosts.items() if len(names) > 1}
    single = len(tasks) > 1 and max(tasks.values()) == 1
    for info in infos:
        if info.rank is None or info.host is None:
            continue
        if info.layout in repeated:
            info.local_rank, info.rank = info.rank, None
        elif info.layout == "slurm" and single:
            info.rank = None
