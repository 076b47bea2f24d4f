"""The parts of a text for a terminal or a pipe: folded lines, lines quoted from a log, and commands that can be run.

Prose is folded and log lines are cut only where ``width`` says that a terminal shows them. In a pipe nothing is folded,
and of a very long log line the part around its telling span is shown. A document keeps a line but not the place in it that
a rule matched, so the span is worked out from the line itself (an exception with its message, a known phrase of a failure)
and from the names and numbers that the verdict says.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, NamedTuple

import click

from nccl_triage.lazy_regex import lazily
from nccl_triage.render.words import Lang, columns, harmless_line, pick, prompt, visible

Item = Mapping[str, Any]
Link = Callable[[str, int], str | None]

#: What a cut line begins or ends with.
GAP = ".."
#: Longest span in characters: more of a message is not needed to recognise it.
LONGEST = 72
#: An exception as Python prints it, with the beginning of its message; a place in source code before it says little.
_EXCEPTION = lazily(
    r"(?:(?:[A-Za-z_]\w{0,80}\.){0,12}[A-Z]\w{0,80}(?:Error|Exception|Interrupt|Expired|Killed|Died|Timeout|Unavailable)(?![A-Za-z_])"
    r"|Fatal Python error)(?:: ?(?P<place>(?:\[[^\]\n]*\]|/\S+:\d+\S*) *)?(?P<message>[^\n]*))?"
)
#: What a library or a launcher reports, behind the place in its source code.
_MESSAGE = lazily(r"(?:NCCL WARN|\[c10d\]|\b(?:error|fatal|ERROR|FATAL):) +(?P<message>[^\n]+)")
#: Phrases that name a failure.
_PHRASE = lazily(
    r"(?i)Xid\b[^,\n]{0,40}|(?:CUDA |GPU )?out of memory|oom[-_ ]?kill\w*|connection (?:refused|reset|closed|timed out)[\w ]*"
    r"|no route to host|network is unreachable|no space left on device|permission denied|no such file or directory"
    r"|\bSIG(?:KILL|TERM|SEGV|ABRT|BUS|FPE|ILL|HUP|INT)\b|signal \d+|exit(?:ed)?[ _-]?(?:code|status)\S* ?:? ?-?\d+"
    r"|(?:undefined symbol|cannot open shared object file)\S*[^\n]{0,40}|illegal memory access|device-side assert\w*"
    r"|unhandled \w+ error|remote process exited|duplicate GPU|CANCELLED[^\n]{0,40}|due to time limit|preempt\w+"
    r"|(?:can't|cannot|unable to|failed to) (?:allocate|connect|open|bind|load|extend)\b|line \d+, in \w+"
    r"|\bkilled\b|timed out|timeout|mismatch\w*|segmentation fault|core dumped|deadlock\w*|\bnan\b|link (?:down|failure)"
)
#: Words that sound like a failure and say little.
_WEAK = lazily(
    r"(?i)\b(?:fatal|errors?|fail(?:ed|ure)|abort\w*|invalid|cannot|could not|unable|lost|refused|not found)\b"
)
#: Names and numbers worth looking for in a line.
_NAME = lazily(
    r"[A-Za-z0-9_][\w./:=@%-]{0,120}\d[\w./:%-]{0,120}|'[^']{2,60}'|[A-Za-z]{1,80}_\w{1,80}|[A-Z]{3}\w{0,120}"
)
#: Characters of a line, and of what is said about it, that are looked at: a document of ours has no longer ones.
_LOOKED = 8192


class TellingSpan(NamedTuple):
    """Characters ``start`` to ``end`` of a text, and how much they tell."""

    start: int
    end: int
    worth: int


class CutLine(NamedTuple):
    """The part of a line that is shown, and where its telling span lies in it."""

    text: str
    start: int
    end: int


def telling(text: str, says: str = "") -> TellingSpan:
    """Return the telling span of a line; ``says`` is what is said about it. Without any, the span is empty and worth 0."""
    found = [
        *map(_of_exception, _EXCEPTION.finditer(text)),
        *(_cut(m.start("message"), m.end(), 6) for m in _MESSAGE.finditer(text)),
        *(_cut(*m.span(), 4) for m in _PHRASE.finditer(text)),
        *(_cut(*m.span(), 2) for m in _WEAK.finditer(text)),
        *_said(text, says),
    ]
    best = max(found, key=lambda span: (span.worth, -span.start), default=TellingSpan(0, 0, 0))
    return TellingSpan(best.start, best.start + len(text[best.start : best.end].rstrip()), best.worth)


def _of_exception(match: re.Match[str]) -> TellingSpan:
    start = match.start() + match[0].partition(":")[0].rfind(".") + 1
    if not match["message"]:
        return _cut(start, match.end(), 5)
    return _cut(match.start("message") if match["place"] else start, match.end(), 8)


def _cut(start: int, end: int, worth: int) -> TellingSpan:
    return TellingSpan(start, min(end, start + LONGEST), worth)


def _said(text: str, says: str) -> list[TellingSpan]:
    """Return where the line has names and numbers that were said about it."""
    found = []
    for name in {match[0].strip("'.:,") for match in _NAME.finditer(says[:_LOOKED])}:
        at = text.find(name) if len(name) > 1 else -1
        while at > 0 and text[at - 1].isalnum():
            at = text.find(name, at + 1)
        if at >= 0 and not text[at + len(name) : at + len(name) + 1].isalnum():
            found.append(TellingSpan(at, at + len(name), 3))
    return found


def window(text: str, span: TellingSpan, room: int) -> CutLine:
    """Return at most ``room`` columns of a line, with the span in it; a span wider than that is shown from its start."""
    if columns(text) <= room:
        return CutLine(text, span.start, span.end)
    start = 0
    if columns(text[: span.end]) > room - len(GAP):
        before = max(0, min(room // 4, room - 2 * len(GAP) - columns(text[span.start : span.end])))
        start = span.start
        while start and columns(text[start - 1 : span.start]) <= before:
            start -= 1
        if columns(text[start:]) <= room - len(GAP):  # the end of the line fits: show more of what is before it
            while start and columns(text[start - 1 :]) <= room - len(GAP):
                start -= 1
    lead = GAP if start else ""
    end, used = start, len(lead)
    rest = columns(text[start:]) + used
    limit = room if rest <= room else room - len(GAP)
    while end < len(text) and used + columns(text[end]) <= limit:
        used += columns(text[end])
        end += 1
    shown = f"{lead}{text[start:end]}{GAP if end < len(text) else ''}"
    shift = len(lead) - start
    return CutLine(shown, span.start + shift, min(span.end, end) + shift)


#: Columns of a quoted line where nothing is folded, the fewest that are left to one behind its place, and to any.
WHOLE, BESIDE_PLACE, LEAST = 400, 44, 24
#: Columns that the path of a log may take on a terminal, and those that its last name may: shares of all, or so many.
PATH, NAME = 0.25, 0.4
FEWEST = 18
#: Pieces at whose ends a line may be folded: a wide character with its closing punctuation, or a word.
_PIECES = lazily(
    r"[\u2e80-\u9fff\uac00-\ud7ff\uff00-\uffef][，。；：！？、）》”’]*"
    r"|[^\s\u2e80-\u9fff\uac00-\ud7ff\uff00-\uffef]+[，。；：！？、）》”’]*|\s+"
)


def fold(text: str, width: int, indent: int) -> list[str]:
    """Return the text in lines of at most ``width`` columns; the second and later ones are indented."""
    lines, line = [], ""
    for piece in _PIECES.findall(text):
        if line.strip() and columns(line + piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = " " * indent + piece.lstrip()
        else:
            line += piece
    return [*lines, line.rstrip()] if line.strip() else lines


def short_path(path: str, width: int) -> str:
    """Return a path without its first folders where it is long for this terminal: ``.../rank3/stderr.log``."""
    room = max(int(width * PATH), FEWEST)
    if columns(path) <= room:
        return path
    *folders, kept = path.split("/")
    most = max(int(width * NAME), FEWEST) - len(".../")
    if columns(kept) > most:
        return f"..{kept[-most:]}"
    for folder in reversed(folders):
        if columns(f".../{folder}/{kept}") > room:
            break
        kept = f"{folder}/{kept}"
    return f".../{kept}" if folders else kept


class QuotedLine(NamedTuple):
    """One line of a log: where it stands, its text, and what tells in it."""

    path: str
    line: int
    text: str
    span: TellingSpan


def quoted(item: Mapping[str, Any], hints: str = "") -> QuotedLine:
    """Return the most telling line of one piece of evidence; of equal ones the last, where a traceback has its error."""
    texts = str(item.get("text") or "").rstrip("\r\n").split("\n")
    first, last = item.get("line") or 0, item.get("end_line") or 0
    follows = last - first + 1 == len(texts)
    shown = [visible(text[:_LOOKED].rstrip("\r")).expandtabs(4).strip() for text in texts]
    said = f"{pick(item, 'says', 'en')} {hints}"
    spans = [telling(text, said) for text in shown]
    best = max(range(len(shown)), key=lambda at: (spans[at].worth, at if spans[at].worth else -at))
    return QuotedLine(visible(item.get("path") or ""), first + (best if follows else 0), shown[best], spans[best])


def hyperlink(text: str, target: str) -> str:
    """Return a text that a terminal shows as a link (OSC 8); the address must be one of printable ASCII characters.

    Source: https://gist.github.com/egmontkob/eb114294efbcd5adb1944c9f3cb5feda
    """
    if not (target.isascii() and target.isprintable()):
        return text
    return f"\x1b]8;;{target}\x1b\\{text}\x1b]8;;\x1b\\"


class TextPage:
    """Collects the lines and formats them for this output."""

    def __init__(self, color: bool, width: int | None, lang: Lang, link: Link | None = None) -> None:
        self.color, self.width, self.lang = color, width, lang
        self.lines: list[str] = []
        self._link = link
        self._links: dict[int, tuple[str, str, str]] = {}  # line number -> text before the link, its text and address

    def place(self, lead: str, shown: str, path: str, line: int) -> None:
        """Make ``shown``, which follows ``lead`` in the line that is added next, a link to a line of a file."""
        target = self._link(path, line) if self._link is not None else None
        if target is not None:
            self._links[len(self.lines)] = (lead, shown, target)

    def finished(self) -> list[str]:
        """Return the lines as they are printed. Links come last: widths are those of the text."""
        lines = [harmless_line(line) for line in self.lines]
        for number, (lead, shown, target) in self._links.items():
            if number < len(lines) and lines[number].startswith(lead + shown):
                lines[number] = f"{lead}{hyperlink(shown, target)}{lines[number][len(lead + shown) :]}"
        return lines

    def style(self, text: str, **how: Any) -> str:
        """Return the text in a style, where there are colours."""
        return click.style(text, **how) if self.color and text else text

    def folded(self, text: str, indent: int) -> list[str]:
        """Return a text as it is, or in lines on a terminal."""
        return fold(text, self.width, indent) if self.width else [text]

    def blank(self) -> None:
        """Part two blocks."""
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def label(self, label: str) -> str:
        """Return a label with its colon."""
        return f"{visible(label).lower()}{'：' if self.lang == 'zh' else ': '}"

    def say(self, indent: int, label: str, text: str, mark: str = "", **how: Any) -> None:
        """Add ``label: text``, folded on a terminal; ``mark`` is the part of the text to which colours apply."""
        if not text:
            return
        name = self.label(label)
        lines = self.folded(" " * indent + name + visible(text), indent + 2)
        if how:
            lines = [
                self._styled(line, indent + len(name) if not at else 0, mark, how) for at, line in enumerate(lines)
            ]
        self.lines += lines

    def line(self, text: str, mark: str = "", **how: Any) -> None:
        """Add a line that begins with a word of its own, folded on a terminal."""
        lines = self.folded(visible(text), 4)
        self.lines += [self._styled(line, 0, mark, how) for line in lines] if how else lines

    def _styled(self, line: str, begin: int, mark: str, how: Mapping[str, Any]) -> str:
        if mark:
            at = line.find(mark, begin)
            return line if at < 0 else line[:at] + self.style(mark, **how) + line[at + len(mark) :]
        begin += len(line[begin:]) - len(line[begin:].lstrip())
        return line[:begin] + self.style(line[begin:], **how)

    def headline(self, text: str) -> None:
        """Add the first line, in bold."""
        lines = self.folded(f"nccl-triage: {visible(text)}", 2)
        self.lines += [self._styled(line, 0, "", {"bold": True}) for line in lines]

    def command(self, indent: int, text: str) -> None:
        """Add a command, never folded: it is there to be copied."""
        for line in text.splitlines():
            self.lines.append(" " * indent + prompt(line) + self.style(visible(line.rstrip()), fg="green"))

    def quote(self, indent: int, label: str, found: QuotedLine) -> None:
        """Add ``path:line: text``, cut around the telling span, which is bold; a label may come before it.

        On a narrow terminal the text has a line of its own, so that the span is not cut off.
        """
        path = short_path(found.path, self.width) if self.width else found.path
        place = f"{path}:{found.line}:"
        lead = " " * indent + (self.label(label) if label else "")
        room = WHOLE if not self.width else self.width - columns(lead) - columns(place) - 1
        if room < BESIDE_PLACE and self.width:
            self.place(lead, place[:-1], found.path, found.line)
            self.lines.append(f"{lead}{place}")
            lead, place, room = " " * (indent + 2), "", max(self.width - indent - 2, LEAST)
        shown = window(found.text, found.span, room)
        marked = self.style(shown.text[shown.start : shown.end], bold=True)
        if place:
            self.place(lead, place[:-1], found.path, found.line)
        self.lines.append(
            f"{lead}{place}{' ' if place else ''}{shown.text[: shown.start]}{marked}{shown.text[shown.end :]}"
        )


#: Words in capitals that a reader has to replace, alone or with others (``NODE_A``, ``PEER_ADDRESS``), ``<pid>`` and ``...``.
#: Names of variables (``$PATH``, ``MASTER_PORT=``) and what a program itself calls something are none.
_OPEN = lazily(
    r"(?<![\w$\{%+|])(?:(?:ADDRESS|CHECKPOINTS?|CODE|COMMAND|CONTAINER|DATA|DEVICE|FILE|FOLDER|GATEWAY|GPU_INDEX|HCA|HEAD|HOST|HOSTS|INPUT"
    r"|INTERFACE|IP|JOB|JOBID|KEPT|LOG|LOGS|MINUTES|MODEL|NETDEV|NETWORK|NIC|NODE|NODES|PATH|PEER|PID|POD|PORT|PREFIX"
    r"|REACHABLE|SCRIPT|SECONDS|STEP|USER|VALUE|VERSION)(?:_(?:ADDRESS|PATH|IP|NETWORK|A|B|INDEX|OF_THE_STUCK_ACTOR|NAME|ID|LIST))?)"
    r"(?![\w=|\\])|(?<==)[A-Z](?!\w)|(?<==)HOST\d|<[a-z][\w .-]*>|(?:^|(?<=[\s('\"]))\.\.\.(?=$|[\s)'\"])"
)


def is_open(command: str) -> bool:
    """Tell whether a command has a placeholder that nothing in the log fills."""
    return not command.startswith("# ") and _OPEN.search(command) is not None


@dataclass
class NextStep:
    """One thing to do: its word (``do_now`` or ``check``), what it is for, its commands and what to beware of."""

    key: str
    what: str
    commands: list[str] = field(default_factory=list)
    caution: str = ""
    #: Whether it mends something; other steps only tell more.
    repairs: bool = False
    #: Id of the fix that it is.
    id: str = ""


#: Repairs that are told: the first, and what else may mend it.
REPAIRS = 2
#: First words of what only tells more.
_LOOKS = ("Check", "Compare", "Confirm", "Diagnose", "Find", "Gather", "Look", "Read", "Record", "Save", "See")


def is_repair(fix: Item) -> bool:
    """Tell whether a fix mends something; others only say where to look."""
    return not pick(fix, "title", "en").startswith(_LOOKS)


def likeliest_repair(diagnosis: Item) -> Item | None:
    """Return the first fix of a cause that mends something, else its first one."""
    fixes = diagnosis.get("fixes") or []
    return next(iter([*filter(is_repair, fixes), *fixes]), None)


def commands_of(fix: Item) -> list[str]:
    """Return the commands of a fix or a missing piece of evidence; all variables are set by the first one."""
    env = sorted((fix.get("env") or {}).items())
    exports = [f"export {' '.join(f'{name}={shlex.quote(str(value))}' for name, value in env)}"] if env else []
    return [
        line for text in [*exports, *(fix.get("commands") or [])] for line in str(text).splitlines() if line.strip()
    ]


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, without its end."""
    for mark in (". ", "。", "; ", "；"):
        text = text.partition(mark)[0]
    return text.rstrip(".。")


def steps(diagnosis: Item, lang: Lang) -> list[NextStep]:
    """Return everything that can be done, in its order: the fixes, then the check."""
    found = [
        NextStep(
            "do_now",
            pick(fix, "title", lang),
            commands_of(fix),
            first_sentence(pick(fix, "caution", lang)),
            is_repair(fix),
            str(fix.get("id") or ""),
        )
        for fix in diagnosis.get("fixes") or []
    ]
    check = diagnosis.get("next_check") or {}
    if check:
        command = [line for line in str(check.get("command") or "").splitlines() if line.strip()]
        found.append(NextStep("check", pick(check, "what", lang), command))
    return found


def chosen(found: Iterable[NextStep], most: int) -> list[NextStep]:
    """Return what to do with at most ``most`` commands in all: the first repairs, then what can be run as it is.

    The first repair is told without a command, too; where nothing repairs, the first step without a command is.
    """
    found = list(found)
    seen: set[str] = set()
    mends = [step for step in found if step.repairs] or [step for step in found if not step.commands][:1]
    kept: list[NextStep] = []
    for step in mends[:REPAIRS]:
        if kept and most <= 0:
            break
        shown = next(_within([_startable(step)], most, seen), None)
        kept.append(shown or replace(step, commands=[]))
        most -= len(kept[-1].commands)
    rest = [step for step in found if step not in mends[:REPAIRS] and step.commands]
    for choose in (_ready, _to_fill):
        told = {step.what for step in kept}
        kept += _within(choose([step for step in rest if step.what not in told]), most, seen)
        most -= sum(len(step.commands) for step in kept if step.what not in told)
    return kept


def _startable(step: NextStep) -> NextStep:
    """Return a step with its commands before the first that a reader has to fill in, or with that one."""
    return replace(
        step, commands=[*takewhile(lambda command: not is_open(command), step.commands)] or step.commands[:1]
    )


def _ready(found: list[NextStep]) -> Iterator[NextStep]:
    """Yield the steps that can be taken now, with their commands before the first that has a placeholder."""
    for step in found:
        if not is_open(step.commands[0]):
            yield _startable(step)


def _to_fill(found: list[NextStep]) -> Iterator[NextStep]:
    """Yield the steps with their first command, which a reader has to fill in."""
    for step in found:
        yield replace(step, commands=step.commands[:1])


def _within(found: Iterable[NextStep], most: int, seen: set[str]) -> Iterator[NextStep]:
    """Yield the steps with commands that were not seen yet, as many as may be shown."""
    for step in found:
        fresh = [command for command in step.commands if command not in seen]
        if step.commands and not fresh:
            continue
        if step.commands and most <= 0:
            return
        shown = fresh[:most]
        seen.update(shown)
        most -= len(shown)
        yield replace(step, commands=shown)
