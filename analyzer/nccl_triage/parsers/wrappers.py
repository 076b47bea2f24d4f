"""Peel the prefixes that launchers, collectors and loggers put around a message, in any nesting.

``peel`` takes one physical line and returns the message and the context that the prefixes carried. Headers of
the programs whose lines we diagnose (NCCL's ``host:pid:tid [dev] NCCL WARN``, c10's ``[E1206 .. file.cpp:607]``)
are read but stay in the message, because signatures speak of them.

Some prefixes look like ordinary text (``3: ``, ``node1: ``, ``[2] ``). They count only when the source as a
whole uses them: ``WrapperProfile.sniff`` decides that once per source. The others are rows of ``prefixes.certain``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Context
from nccl_triage.parsers import line_context, times
from nccl_triage.parsers.jsonlines import peel_json
from nccl_triage.parsers.learned_prefix import MOST, PROBE, LearnedPrefix, learn
from nccl_triage.parsers.line_context import set_place, set_time
from nccl_triage.parsers.prefixes import ISO_TS, certain

#: Lines at which is looked more closely.
SOME = 100
#: Lines of samples that are tried where a larger one shows no prefix: behind a short run others may speak.
FEW = (100, 30)
#: Lines of one shape from which it is learnt where many lines are of few shapes.
SAME_SHAPE = 4
#: Prefixes peeled from one line at most; real lines carry six or seven.
MAX_LAYERS = 16

_ANSI = lazily(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]")
# rsyslog writes a control character as `#` and its octal number.
_OCTAL_ANSI = lazily(r"#033\[[0-9;]{0,12}[mK]")
# Copies from web consoles lose the ESC byte: `[36m(Actor pid=1) ...`.
_LOST_ANSI = lazily(r"^(?:\[\d{1,2}(?:;\d{1,2})*m)+")
_INNER_LOST_ANSI = lazily(r"\[\d{1,2}(?:;\d{1,2})*m(?=\s|$|\()")


@dataclass(slots=True)
class Peeled:
    """A line without its wrappers. ``extra`` holds further lines that were packed inside (JSON ``exc_info``)."""

    text: str
    context: Context
    wrappers: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)


_DEDUP = lazily(r"\s*\[repeated (?P<n>\d{1,9})x across cluster\](?: \(Ray deduplicates logs by default\.[^\n]*\))?\s*$")

# Prefixes that look like ordinary text: believed only when most lines of the source carry them.
_SRUN = lazily(r"(?:P\d+\s)?\s{0,5}(?P<task>\d{1,6}): ?")
_NODE = lazily(r"(?P<node>(?:[A-Za-z][\w.-]{0,62}|\d{1,3}(?:\.\d{1,3}){3})): (?=\S|\s|$)")
_MPICH = lazily(r"\[(?P<rank>\d{1,7})\] (?=\S)")
_STERN = lazily(
    r"(?P<pod>[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?-(?:\d+|[a-z0-9]{5})) (?P<container>[a-z][a-z0-9-]*)(?: (?=\s{0,200}\S)| ?$)"
)
#: A time and the name of a host or stream, as collectors put them, without the name of a program; such a name has a number.
_STAMPED = lazily(
    r"(?P<ts>"
    + ISO_TS
    + r") (?P<node>(?!(?i:local_rank|rank|gpu|cuda|device|step|epoch|iter|task|[tpde]p|v)[-_.]?\d)(?=[\w.-]{0,62}\d)[A-Za-z][\w.-]{0,62}(?:/[\w.-]{1,100})?)(?: (?=\s{0,200}\S)| ?$)"
)
#: What a syslog writes behind them.
_PROGRAM = lazily(r"[A-Za-z][\w./-]{0,60}(?:\[\d{1,18}\])?: ")
#: Docker compose names the service, a swarm the task and behind it the node.
_COMPOSE = lazily(r"(?:[A-Za-z][\w.-]*@)?(?P<service>[A-Za-z][\w.-]*)\s*\| ?")
#: A task of a launcher, counted over all hosts as Slurm's are.
_TASK = lazily(r"\[task (?P<task>\d{1,6})\] (?=\S)")
#: The name of a pod or host in brackets, as home-made collectors put it; every such name has a number.
_BRACKETED = lazily(r"\[(?P<pod>(?=[^\]]*\d)[a-z][a-z0-9.]{0,60}(?:-[a-z0-9.]{1,60}){1,8})\] ?")
_NUMBERED, _DIGIT_RUNS = lazily(r"\d"), lazily(r"\d+")
#: How lines without a prefix begin that belong to a traceback, to py-spy's stacks or to nccl-tests.
_BEGINS = lazily(
    r'Traceback \(most recent call last\):|  File "|[A-Za-z_][\w.]{0,80}(?:Error|Exception)(?:: |$)'
    r"|Thread (?:(?:0x)?\w{1,20} )?\((?:active|idle)| {4}[\w.<>]{1,120} \([\w./<>-]{1,200}:\d{1,7}\)$|#(?: nThread|$|\s{2,})"
)
_NOT_A_NODE = lazily(
    r"(?:.*(?:Error|Exception|Warning|Interrupt|Exit|\.py|\.sh)|usage|WARNING|INFO|ERROR|DEBUG|Traceback|note|error|warning|fatal"
    r"|srun|slurmstepd|slurmd|kernel|wandb|nccl[A-Z]\w*|python\d?|bash|sh|File|Killed|Aborted|NOTE|Epoch|Train|Training|time|loss|steps?|Note"
    r"|rank[-_ ]?\d{1,6}|HINT|Loading|Running|Episode|Map|Downloading|Librccl|Hostname|what|what\(\)|torch\S*|ray\.\S*|name|ip|pid|host|rank)$"
)


@dataclass(slots=True)
class WrapperProfile:
    """Which of the ambiguous prefixes a source uses, and the prefix that all of its lines got later."""

    srun: bool = False
    node: bool = False
    nodes: frozenset[str] = frozenset()
    #: Whether the name of a node follows that of another: that of the process behind that of its launcher.
    nested: bool = False
    rank_column: bool = False
    number_column: bool = False
    stern: bool = False
    stamped: bool = False
    compose: bool = False
    bracketed: bool = False
    task: bool = False
    outer: LearnedPrefix | None = None
    #: A learned prefix behind known ones, such as the name of a stream behind the time of its collector.
    inner: LearnedPrefix | None = None

    @classmethod
    def sniff(cls, lines: Iterable[str]) -> WrapperProfile:
        """Look at the first lines of a source and decide; where most of many tell nothing, the first few may."""
        sample = [_strip_ansi(line) for line in lines]
        sample = [line for line in sample if line.strip()]
        profile = cls._of(sample)
        if profile != cls():
            return profile
        shapes = [_DIGIT_RUNS.sub("0", line) for line in sample]
        distinct = set(shapes)
        for few in FEW:
            if len(sample) > few and len(set(shapes[:few])) < len(distinct):  # else they tell nothing else
                profile = cls._of(sample[:few])
                if profile != cls():
                    return profile
        # Lines of another program that come again and again hide how the others begin.
        rare = _few_of_a_shape(sample, shapes)
        if SAME_SHAPE < len(rare) < len(sample) // 2:
            profile = cls._of(rare)
            if not all(map(_NUMBERED.search, profile.nodes)):
                profile = cls()  # of so few lines a word before a colon is no name
        return profile

    @classmethod
    def _of(cls, sample: list[str]) -> WrapperProfile:
        profile = cls()
        if not sample:
            return profile
        profile.look(sample)
        if profile == cls():
            profile.outer = learn(sample[:SOME], _recognised)
            if profile.outer is not None:
                sample = [rest for line in sample if (rest := profile.outer.without(line)) is not None and rest.strip()]
                profile.look(sample)
        # Behind a collector's prefix may stand that of a launcher.
        for some in (sample[:PROBE], sample[:SOME]):
            inside = [peeled.text for line in some if (peeled := peel(line, profile)).wrappers]
            if len(inside) <= MOST * len(some):
                return profile
        inside = [text for text in inside if text.strip()]
        profile.inner = learn(inside, _recognised)
        if profile.inner is not None:
            inside = [rest for text in inside if (rest := profile.inner.without(text)) is not None and rest.strip()]
        profile.look_inside(inside)
        return profile

    def look(self, sample: Sequence[str]) -> None:
        """Decide which of the ambiguous prefixes stand at the beginning of lines."""
        half = max(2, len(sample) // 2)
        self.srun = _labelled_by_srun(sample, half)
        named = [m for line in set(sample) if (m := _NODE.match(line)) and not _NOT_A_NODE.match(m["node"])]
        nodes = Counter(m["node"] for m in named)
        repeated = {name: n for name, n in nodes.items() if n > 1}
        if repeated and sum(repeated.values()) > len(set(sample)) * 0.4:
            # A word that stands once before a colon is no host, unless it is numbered as hosts are.
            self.node, self.nodes = True, frozenset(n for n in nodes if n in repeated or _NUMBERED.search(n))
        numbers = [int(m["rank"]) for line in sample if (m := _MPICH.match(line))]
        if len(numbers) > half:
            rising = all(a < b for a, b in itertools.pairwise(numbers))
            self.number_column = rising and len(numbers) > 2
            self.rank_column = not rising and len(set(numbers)) <= len(numbers) * 2 // 3
        self.stern = sum(1 for line in sample if _STERN.match(line)) > max(2, len(sample) * 2 // 3)
        named = [m for line in sample if (m := _STAMPED.match(line))]
        names = {m["node"] for m in named}
        spoken = sum(1 for m in named if not _PROGRAM.match(m.string, m.end()))
        self.stamped = (
            len(named) > max(2, MOST * len(sample)) and len(names) <= len(named) // 3 and spoken > len(named) // 2
        )
        self.compose = sum(1 for line in sample if _COMPOSE.match(line)) > max(2, len(sample) * 2 // 3)
        spoke = [m["task"] for line in sample if (m := _TASK.match(line))]
        self.task = len(spoke) > half and len(set(spoke)) > 1
        names = {m["pod"] for line in sample if (m := _BRACKETED.match(line))}
        self.bracketed = len(names) > 1 and all(map(_BRACKETED.match, sample))

    def look_inside(self, sample: Sequence[str]) -> None:
        """Look behind other prefixes, where words before a colon are common: names of hosts have a number."""
        most = max(3, MOST * len(sample))
        self.srun = self.srun or _labelled_by_srun(sample, most)
        for name, pattern in (("node", _NODE), ("compose", _COMPOSE)):
            names = [m[1] for line in sample if (m := pattern.match(line)) and _NUMBERED.search(m[1])]
            if len(names) > most and (name == "node" or not getattr(self, name)):
                self.nested = self.nested or self.node
                setattr(self, name, True)
                self.nodes |= frozenset(names)


#: Prefixes that hold who speaks: which lines have the same one decides whether they are prefixes at all.
_SPEAKERS = (_SRUN, _MPICH, _STERN, _STAMPED, _COMPOSE, _TASK, _BRACKETED)


def speaker_of(line: str) -> str:
    """Return the name or number of who speaks with which a line may begin, and what stands around it; "" without one."""
    node = _NODE.match(line)
    if node is not None and not _NOT_A_NODE.match(node["node"]):
        return node[0]
    return next((found[0] for pattern in _SPEAKERS if (found := pattern.match(line)) is not None), "")


_PLAIN = WrapperProfile()
#: Characters of lines that are remembered.
_SHORT = 500


def _few_of_a_shape(sample: Sequence[str], shapes: Sequence[str]) -> list[str]:
    """Return the lines without those that only differ in digits from several before them."""
    seen: Counter[str] = Counter()
    kept = []
    for line, shape in zip(sample, shapes, strict=True):
        seen[shape] += 1
        if seen[shape] <= SAME_SHAPE:
            kept.append(line)
    return kept


def _labelled_by_srun(sample: Sequence[str], most: float) -> bool:
    """Tell whether more lines than that begin with a task's number, and the same tasks speak again."""
    tasks = [m["task"] for line in sample if (m := _SRUN.match(line))]
    return len(tasks) > most and len(set(tasks)) <= max(1, len(tasks) * 2 // 3)


def _strip_ansi(line: str) -> str:
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "#033[" in line:
        line = _OCTAL_ANSI.sub("", line)
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
    inner = profile.nested and "node" in seen and "inner-node" not in seen
    if (
        profile.node
        and (inner or "node" not in seen)
        and (match := _NODE.match(line))
        and match["node"] in profile.nodes
    ):
        name = match["node"]
        if name[0].isdigit():
            context.address = name if inner else context.address or name
        else:
            # A launcher's word for where the line comes from, within what the launcher's own host wrote.
            context.host = name
        return "inner-node" if inner else "node", match.end()
    if profile.rank_column and "column" not in seen and (match := _MPICH.match(line)):
        context.rank = int(match["rank"])
        return "column", match.end()
    if profile.number_column and "column" not in seen and (match := _MPICH.match(line)):
        return "column", match.end()
    if profile.stern and "stern" not in seen and (match := _STERN.match(line)):
        set_place(context, match["pod"])
        return "stern", match.end()
    if profile.stamped and not seen and (match := _STAMPED.match(line)):
        set_time(context, times.from_stamp(match["ts"]))
        context.clock = context.clock or "stamped"
        set_place(context, match["node"])
        return "stamped", match.end()
    if profile.task and "task" not in seen and (match := _TASK.match(line)):
        context.group_rank = int(match["task"])
        return "task", match.end()
    if profile.bracketed and "bracketed" not in seen and (match := _BRACKETED.match(line)):
        set_place(context, match["pod"])
        return "bracketed", match.end()
    if profile.compose and "compose" not in seen and (match := _COMPOSE.match(line)):
        set_place(context, match["service"])
        return "compose", match.end()
    return None


def _recognised(lines: Sequence[str]) -> int:
    """Return how many of some lines begin with a known prefix, if they are a whole source."""
    profile = WrapperProfile()
    profile.look(lines)
    if profile == _PLAIN:
        return sum(_plainly_known(line) if len(line) <= _SHORT else _is_known(line, _PLAIN) for line in lines)
    return sum(_is_known(line, profile) for line in lines)


def _is_known(line: str, profile: WrapperProfile) -> bool:
    peeled = peel(line, profile)
    return bool(peeled.wrappers or peeled.context.program or _BEGINS.match(line))


#: Lines without their digits -> whether they begin with an unambiguous prefix: it is asked of each several times.
_known: dict[str, bool] = {}
_MAX_KNOWN = 1 << 12
#: Folds the digits of a text.
FOLDED = str.maketrans("123456789", "000000000")


def _plainly_known(line: str) -> bool:
    """Tell whether a line, or one before it that differed in its digits, begins with an unambiguous prefix."""
    folded = line.translate(FOLDED)
    known = _known.get(folded)
    if known is None:
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        known = _known[folded] = _is_known(line, _PLAIN)
    return known


def peel(line: str, profile: WrapperProfile = _PLAIN) -> Peeled:
    """Return the message of a line and the context that its prefixes carried."""
    text = _strip_ansi(line).rstrip()
    peeled = Peeled(text=text, context=Context())
    if profile.outer is not None and (behind := profile.outer.without(text)) is not None:
        peeled.wrappers.append("outer")
        text = behind
    context, seen = peeled.context, set[str]()
    for _ in range(MAX_LAYERS):
        if not text:
            break
        first = text[0]
        if first == "{":
            unpacked = peel_json(text, context)
            if unpacked is None:
                break
            if context.clock is None and context.time is not None:
                context.clock = "json"
            peeled.wrappers.append("json")
            text, *extra = map(_strip_ansi, unpacked)
            peeled.extra.extend(extra)
            continue
        ambiguous = _ambiguous(text, profile, context, seen)
        if ambiguous is not None:
            seen.add(ambiguous[0])
            peeled.wrappers.append(ambiguous[0])
            text = text[ambiguous[1] :]
            continue
        stripped = text.lstrip(" \t") if first in " \t" else text
        for name, pattern, handler in certain(stripped[:1]):
            match = pattern.match(stripped)
            if match is not None:
                handler(match, context)
                if context.clock is None and context.time is not None:
                    context.clock = name
                peeled.wrappers.append(name)
                text = stripped[match.end() :]
                break
        else:
            if profile.inner is None or "inner" in seen or (behind := profile.inner.without(text)) is None:
                break
            seen.add("inner")
            peeled.wrappers.append("inner")
            text = behind
    # It stands at the end, if anywhere.
    repeated = _DEDUP.search(text, max(0, len(text) - 400)) if "repeated" in text[-400:] else None
    if repeated is not None:
        context.repeated = int(repeated["n"])
        text = text[: repeated.start()]
    line_context.read_headers(text, context)
    peeled.text = text
    return peeled
