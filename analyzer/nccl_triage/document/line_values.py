"""What a headline tells of one line: who printed it, what it says, which GPU it names, how its process ended.

Each value is a phrase in English or Chinese that fits into a sentence; it is None where the line does not tell it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Sequence

from nccl_triage.diagnosis.case import Case
from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Event
from nccl_triage.redaction.secrets import mask_text
from nccl_triage.story.error_codes import codes
from nccl_triage.story.exits import SIGNAL_TEXTS, signal_of_code

#: Characters of a value, and of a line that is quoted.
VALUE, QUOTE = 120, 100
#: Characters of a message after which its first sentence is enough.
SENTENCE = 36
#: Folders of code that is not the user's.
_LIBRARY = lazily(r"/(?:site|dist)-packages/|/lib/python\d|^<frozen ")
_FRAME = lazily(r"(?P<file>.+):(?P<line>\d+) (?P<function>\S+)$")
#: What stands in front of a message: the prefixes of loggers, the place in the source, the type of an exception.
_PREFIX = lazily(
    r"(?:"
    r"[^\n]{0,320}?\bNCCL (?:WARN|INFO|ERROR) |"
    r"[^\n]{0,320}?=>> |"
    r"(?:[A-Z][A-Za-z]{0,8} +\| +)?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[\d.,]{0,7} +\| +(?:[\w.:-]{0,60} *\| +){0,4}|"
    r"\[[\w.-]+: ?\d+ ?:\d+(?::\d+)?\] +\S+ +UCX +\w+ +|"
    r"\d{1,3}%\|[^|\n]{0,80}\|[^\[\n]{0,60}\[[^\]\n]{0,80}\] ?|"
    r"\(\w+ (?:pid|rank)=[^)\n]{1,60}\) |"
    r"\[[EWIFC]\d{0,4} [^\]\n]{0,90}\] |"
    r"(?:[\w-]{1,20} )?[EWIFC]\d{4,8} [\d:.]+ [^\]\n]{0,90}\] |"
    r"\[(?:c10d|PG [^\]\n]{0,80}|[Rr]ank ?:?\d+|error|application)\]:? ?|"
    r"(?:\w+ )?libfabric:\d+:\d+:[^<\n]{1,80}<\w+> |"
    r"\[[\w.-]+\]\[\[\d+,\d+\],\d+\]\[[^\]\n]{1,120}\] |"
    r"\[PID: \d+\] \S{10,40} |HCCL\(\d+,[^)\n]{1,60}\):\S{10,40} \[[\w.]+:\d+\] (?:\[[^\]\n]{1,60}\] ?){0,6}|"
    r"\S{8,40}:\(\d+\) \|CCL_\w+\| \S+ |\[LightGBM\] \[\w+\] |WARN: Function: \w+ Line: \d+: |"
    r"[\w.-]+:\d+:\d+ \[\d+\] \S+:\d+ (?:NCCL )?WARN |\d\d:\d\d(?::\d\d)?\.\d+ |"
    r"(?:ERROR|WARNING|INFO) \d{4}-\d\d-\d\d \S+ (?:[+-]\d{4} )?(?:\w+ )?|"
    r"[EWIFC] \d\d-\d\d [\d:.]+ [^\]\n]{0,60}\] |(?:\d+: )?INFO:[\w.]+:|\| (?=WARNING|ERROR)|"
    r"E \S{1,120}:\d+\] |raise [\w.]+\([\"']?|\[TensorRT-LLM\]\[\w+\] |"
    r"(?:\| )?(?:INFO|WARNING|ERROR|DEBUG) \| (?:rank \d+ \| )?|"
    r"[\w.-]+ (?:INFO|WARNING|ERROR|DEBUG|CRITICAL) (?:r\d+ )?|"
    r"(?:srun|slurmstepd|submitit|mpirun|NVRM|Message|Failed)(?:: error|: fatal)?: +|"
    r"amdgpu [0-9a-f:.]{7,12}: (?:amdgpu: )?|"
    r"(?:Process group|NCCL) watchdog thread terminated with exception: |"
    r"what\(\): +|"
    r"(?:ERROR|WARNING|Error|FATAL|Exception)s?: |"
    r"(?:[A-Za-z_]\w*\.)*[A-Za-z]\w*(?:Error|Exception|Fault|Warning|Interrupt): |"
    r"\[(?:enforce fail at )?[\w./+-]+\.(?:cc|cpp|cxx|c|h|hpp|cu|py):\d+\][ .]*|"
    r"[\w./+-]+\.(?:cc|cpp|cxx|c|h|hpp|cu|py)(?::\w+)?:\d+:? "
    r")"
)
_SPACES = lazily(r" {2,}")
_BESIDE = lazily(r" *([（）：，。；、“”]) *")
_BETWEEN = lazily(r"(?<=[一-鿿])(?=[A-Za-z0-9/])|(?<=[A-Za-z0-9%])(?=[一-鿿])")
_WITHIN = lazily(r"(?<=[一-鿿]) +(?=[一-鿿])")
_WORD = lazily(r"ranks? \d|a process on ")
_STEP = lazily(r"(?i)\b(?:step|iter|iteration|global_step)\b[\s:=#\[]{0,12}(?P<step>\d{1,9})\b")
_SENTENCE = lazily(r"[.!?]\s+(?=[A-Z0-9(\[{'\"])")
#: Signals by the words of strsignal(3), also those that no exit is told by.
_SIGNAL_TEXTS = {
    **SIGNAL_TEXTS,
    "cpu time limit exceeded": signal.SIGXCPU,
    "file size limit exceeded": signal.SIGXFSZ,
    "user defined signal 1": signal.SIGUSR1,
    "user defined signal 2": signal.SIGUSR2,
}
#: Signals that need words beside their name.
_FAULTS = {
    "SIGSEGV": ("segmentation fault", "段错误"),
    "SIGBUS": ("bus error", "总线错误"),
    "SIGFPE": ("arithmetic error", "算术错误"),
    "SIGILL": ("illegal instruction", "非法指令"),
    "SIGABRT": ("abort", "异常中止"),
}


#: Characters of a text that are looked at for secrets.
MASKED = 2000


def cut(text: str, most: int = VALUE) -> str:
    """Return a text on one line, shortened to a number of characters; a secret is masked before it is cut in two."""
    flat = " ".join(text.split())
    if len(flat) <= most:
        return flat
    return mask_text(flat[:MASKED])[: most - 1].rstrip() + "…"


def of_line(name: str, event: Event, case: Case, language: str) -> str | None:
    """Return what a line tells under a name of a placeholder, or None."""
    return _TELLS[name](event, case, language)


def process(rank: int | None, host: str | None, language: str) -> str | None:
    """Return a rank and its host in words, as far as known: ``rank 2 on gpu-a``."""
    return host if rank is None else f"rank {rank}{on_host(host, language)}"


def process_on(host: str, language: str) -> str:
    """Return a process of which only the host is known in words."""
    return f"a process on {host}" if language == "en" else f"{host} 上的进程"


def on_host(host: str | None, language: str) -> str:
    """Return what follows a rank whose host is known."""
    if host is None:
        return ""
    return f" on {host}" if language == "en" else f"（{host}）"


def exception(event: Event) -> str | None:
    """Return an exception as Python prints it: its type and its message."""
    kind = event.fields.get("type") or event.fields.get("name")
    if not kind or event.kind != "exception":
        return None
    message = (event.fields.get("message") or event.fields.get("why") or "").strip().partition("\n")[0].rstrip(". ")
    kind = kind.rpartition(".")[2]
    return cut(f"{kind}: {message}" if message else kind, QUOTE)


def message(text: str) -> str:
    """Return what a line says, without what the log prints in front of it, up to the end of the first sentence."""
    flat = " ".join(text.split())
    for _ in range(6):
        found = _PREFIX.match(flat)
        if found is None or len(flat) - found.end() < 8:
            break
        flat = flat[found.end() :]
    end = next((found.start() for found in _SENTENCE.finditer(flat) if found.start() >= SENTENCE), len(flat))
    told = flat[:end].rstrip(" .,:\\")
    # A line of source code that raises an exception closes its quotation and its call.
    return cut(told.rstrip("\"')") if told.endswith(('")', "')")) and "(" not in told else told, QUOTE)


def spaced(text: str, language: str) -> str:
    """Return a sentence with the usual spaces: in Chinese between the scripts, and none beside full-width marks."""
    text = _SPACES.sub(" ", text)
    if language == "en":
        return text
    return _WITHIN.sub("", _BETWEEN.sub(" ", _BESIDE.sub(r"\1", text))).strip()


def listed(names: Sequence[str], language: str) -> str:
    """Return names as a sentence lists them: ``a, b and c``."""
    comma, last = (", ", " and ") if language == "en" else ("、", " 与 ")
    return last.join(part for part in (comma.join(names[:-1]), names[-1]) if part)


def capital(text: str) -> str:
    """Return a sentence with a capital letter where it begins with a rank; a name of the log is left as it is."""
    return f"{text[:1].upper()}{text[1:]}" if _WORD.match(text) else text


def _rank(event: Event, case: Case, language: str) -> str | None:
    rank = case.rank(event)
    return None if rank is None else str(rank)


def _process(event: Event, case: Case, language: str) -> str | None:
    return process(case.rank(event), case.host(event), language)


def _place(event: Event, case: Case, language: str) -> str | None:
    """Return a host with the rank that printed the line: ``gpu-a (rank 2)``."""
    rank, host = case.rank(event), case.host(event)
    if host is None or rank is None:
        return process(rank, host, language)
    return f"{host} (rank {rank})" if language == "en" else f"{host}（rank {rank}）"


def _gpu(event: Event, case: Case, language: str) -> str | None:
    told = event.fields.get("gpu") or event.fields.get("device") or event.fields.get("dev") or ""
    number = whole(told.rpartition(":")[2])
    if number is None:
        number = event.context.gpu
    return None if number is None else str(number)


def _device(event: Event, case: Case, language: str) -> str | None:
    """Return a GPU in words: ``GPU 1 (0000:3b:00) on gpu-a``."""
    number, address, host = _gpu(event, case, language), event.fields.get("bdf"), case.host(event)
    if number is None and address is None:
        return None
    # A card with an address is named by it; the index of the process that prints a line may be another one's.
    told = f"GPU {address or number}"
    if host is None:
        return told
    return f"{told} on {host}" if language == "en" else f"{host} 上的 {told}"


def _code(event: Event, case: Case, language: str) -> str | None:
    """Return an Xid or SXid with its meaning: ``Xid 79 (the host can no longer reach the GPU over PCIe)``."""
    for field, name in (("xid", "Xid"), ("sxid", "SXid")):
        number = whole(event.fields.get(field))
        if number is None:
            continue
        row = codes(field).get(number)
        if row is None:
            return f"{name} {number}"
        meaning = re.split(r"[.:;] |[。：；]|\.$", row.meaning[language])[0]
        if language != "en":
            return f"{name} {number}（{meaning}）"
        first = meaning.partition(" ")[0]
        return (
            f"{name} {number} ({meaning if first.isupper() and len(first) > 1 else meaning[:1].lower() + meaning[1:]})"
        )
    return None


def _signal(event: Event) -> str | None:
    code = whole(event.fields.get("exitcode"))
    number = whole(event.fields.get("signo"))
    if number is None and code is not None:
        number = signal_of_code(code)
    told = event.fields.get("signal") or event.fields.get("why") or ""
    if number is None and told.startswith("SIG"):
        return told
    if number is None:
        number = whole(told) or _SIGNAL_TEXTS.get(told.lower())
    try:
        return None if number is None else signal.Signals(number).name
    except ValueError:
        return None


def ended(event: Event, language: str) -> str | None:
    """Return how a process ended, as the predicate of a sentence: ``crashed with SIGSEGV (segmentation fault)``."""
    name = _signal(event)
    english = language == "en"
    if name is None:
        code = whole(event.fields.get("exitcode"))
        if code is None:
            return None
        return f"exited with code {code}" if english else f"以退出码 {code} 退出"
    if name in _FAULTS:
        fault = _FAULTS[name]
        return f"crashed with {name} ({fault[0]})" if english else f"因 {name}（{fault[1]}）崩溃"
    return f"was killed by {name}" if english else f"被 {name} 杀死"


def duration(seconds: float, language: str) -> str:
    """Return a duration in the unit in which people set it: ``30 min``, ``8 s``."""
    if seconds >= 120 and seconds % 60 == 0:
        return f"{seconds / 60:g} min" if language == "en" else f"{seconds / 60:g} 分钟"
    return f"{seconds:g} s" if language == "en" else f"{seconds:g} 秒"


def _timeout(event: Event, case: Case, language: str) -> str | None:
    """Return the timeout that a line names, else that of the collective in which ranks gave up."""
    milliseconds, seconds = event.number("timeout_ms"), event.number("seconds")
    if milliseconds is None and seconds is not None:
        return duration(seconds, language)
    if milliseconds is None:
        milliseconds = case.value("collective.timeout_ms")
    return None if milliseconds is None else duration(milliseconds / 1000, language)


def _step(event: Event, case: Case, language: str) -> str | None:
    """Return the number of the training step that a line names."""
    found = _STEP.search(event.text)
    return event.fields.get("step") or (None if found is None else found["step"])


def _file(event: Event, case: Case, language: str) -> str | None:
    """Return the name of the file that a line names, without its folders."""
    return event.fields.get("path", "").rstrip("/").rpartition("/")[2] or None


def _frame(event: Event, case: Case, language: str) -> str | None:
    """Return the innermost frame of the user's own code: ``calls.py:73, look_up``."""
    for line in reversed(event.fields.get("user_frames", "").splitlines()):
        found = _FRAME.match(line)
        if found is not None and _LIBRARY.search(found["file"]) is None:
            name = found["file"].rpartition("/")[2]
            function = "" if found["function"] == "<module>" else f", {found['function']}"
            return f"{name}:{found['line']}{function}"
    return None


#: What tells each placeholder that one line fills.
_TELLS: dict[str, Callable[[Event, Case, str], str | None]] = {
    "rank": _rank,
    "host": lambda event, case, language: case.host(event),
    "process": _process,
    "place": _place,
    "gpu": _gpu,
    "device": _device,
    "code": _code,
    "ended": lambda event, case, language: ended(event, language),
    "signal": lambda event, case, language: _signal(event),
    "timeout": _timeout,
    "step": _step,
    "file": _file,
    "error": lambda event, case, language: exception(event),
    "frame": _frame,
    "message": lambda event, case, language: message(event.text) or None,
    "line": lambda event, case, language: cut(event.text, QUOTE),
}
#: Placeholders that a line of the evidence fills.
OF_LINE = tuple(_TELLS)
#: Those of them that belong to the culprit, if a template names it.
OF_CULPRIT = frozenset({"ended", "signal", "error", "frame"})
