"""Python exceptions: which are the program's own, and which only report that a peer or child process is gone."""

from __future__ import annotations

from typing import NamedTuple

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.parsers.traceback_lines import HANDED_ON
from nccl_triage.parsers.tracebacks import TRACEBACK, lines_of
from nccl_triage.story.decisions import ITSELF, Decision, Grounds, Table
from nccl_triage.story.line_spans import LineSpans
from nccl_triage.story.view import View

#: The signature of a line that names any exception; the other signatures of the kind know its message.
LONE = "python.exception_line"
#: The signatures of a logger's record of an error that names an exception, or has the text of one.
LOGGED = ("python.logged_exception", "python.logged_message")
#: Levels of a record that reports an error.
ERROR_LEVELS = ("ERROR", "FATAL", "CRITICAL", "E", "F")
#: Lines between such a record and the traceback that it announces.
_ABOVE = 2
#: What a record names before an exception of another process.
_OF_OTHER = lazily(
    r"(?i)\b(?:(?:rank|worker|actor|node|process|replica|task|pid)s?[ :=#(\[]{0,3}(?P<number>\d{1,18})\b|(?:child|children|peers?|remote)\b)"
)

_COMMUNICATION_TYPES = {
    "DistBackendError", "DistNetworkError", "DistStoreError", "DistError", "ConnectionResetError", "BrokenPipeError",
    "ConnectionRefusedError", "ConnectionAbortedError", "ActorDiedError", "RayActorError", "ActorUnavailableError",
    "WorkerCrashedError", "NodeDiedError", "ObjectLostError", "OwnerDiedError", "LocalRayletDiedError",
    "RendezvousClosedError", "RendezvousConnectionError", "RendezvousTimeoutError", "RendezvousStateError",
    "ProcessExitedException", "AioRpcError", "_InactiveRpcError", "_MultiThreadedRendezvous",
}  # fmt: skip
_LAUNCHER_TYPES = {"ChildFailedError", "CalledProcessError", "SignalException", "SystemExit", "KeyboardInterrupt",
                   "ProcessRaisedException", "EngineDeadError", "AsyncEngineDeadError", "EngineGenerateError",
                   "WorkerGroupError", "TrainingFailedError"}  # fmt: skip
_COMMUNICATION = lazily(
    r"gloo/|\bHCCL (?:function )?error\b|\bhccl api failed\b|\bNPU function error: [^\n]{0,200}\berror code is 50704[678]\b|\bxla\.gpu\.(?:all_|reduce_scatter|collective|send|recv)|\bNCCL operation \w+\(|NCCL:? (?:[Ee]rror|failure|communicator|unhandled|internal error|remote process)|NCCL_ERROR(?:\b|_(?:INTERNAL|SYSTEM|REMOTE|UNHANDLED_CUDA))|\bnccl(?:CommInit|SystemError|RemoteError|InternalError|UnhandledCudaError)|"
    r"did not (?:return|answer|respond|arrive|join|ask|report|connect)\b.{0,60}\bwithin\b|\branks? [\[({]?\d[\d, ]{0,60}[\])}]? (?:(?:is|are) )?(?:missing|unresponsive|not responding)\b|\b(?:missing|absent) ranks?\b|[Cc]onnection (?:closed|reset|refused)|Broken pipe|Socket [Tt]imeout|"
    r"\b(?:wait(?:ing|ed)?|waits) for (?:all |the |other |remaining |\d{1,6} ){0,3}(?:nodes?|ranks?|workers?|peers?|processes|members|replicas|hosts)\b|"
    r"\bfailed to (?:start|come up|become ready|be ready|respond|connect|join|launch)\b.{0,40}\b(?:in|within|after) \d|"
    r"\btimed? ?out\b|Timed out|\bwait timeout|store_based_barrier|remote process exited|[Aa]pplication timeout caused pair closure|"
    r"[Uu]nable to find address for|connectFullMesh|No route to host|Network is unreachable|"
    r"this error originated at tensorpipe|RPC ran for more than set timeout|exhausted (?:all )?inputs|"
    r"monitoredBarrier|Detected mismatch between collectives|Some of the connections|process group|TCPStore|recvValue failed"
)
#: A call that was refused for its arguments also mentions process groups.
_REFUSED = lazily(
    r"ProcessGroup\w{2,12} ?:: ?\w{2,40} ?: ?(?:[Ii]nvalid|[Ii]ncorrect|[Rr]equires|[Cc]annot use|[Uu]nsupported|[Ii]nput)\b"
)
#: Exceptions of Python itself about the program's own values and names, whatever their message quotes.
_PROGRAM_TYPES = {
    "KeyError", "IndexError", "AttributeError", "NameError", "UnboundLocalError", "ZeroDivisionError", "RecursionError",
    "ModuleNotFoundError", "NotImplementedError", "UnicodeDecodeError", "JSONDecodeError",
}  # fmt: skip
#: A server outside of the job that did not answer (its name has a domain).
_OUTSIDE = lazily(
    r"\bHTTPS?ConnectionPool\(host='(?!localhost|127\.|10\.|172\.|192\.168\.|0\.0|\[|[\w-]{1,63}')|\bendpoint URL: "
)
#: Exceptions of HTTP clients. Where they name no host of the job, it is not known that the server belongs to it.
_CLIENTS = ("requests.", "urllib3.", "aiohttp.", "httpx.", "httpcore.", "botocore.")
#: What a child of multiprocessing raises if its parent ends before it has sent the child its task.
_ORPHANS = ("UnpicklingError", "EOFError")
#: A process group that is used before it exists, or created twice, is a mistake of the program itself.
_MISUSE = lazily(r"process group has not been initialized|initialize the default process group twice")
_ENGINE = lazily(r"Engine core initialization failed|See (?:root cause above|(?:the )?stack trace for (?:the )?root cause)|Failed to start GCS\b|Background loop (?:has errored|is stopped)"
                     r"|process \d{1,6} terminated with\b|failed to initialize the engine|died unexpectedly|subprocess-exited|exits? with return code")  # fmt: skip


def kind_of(event: Event) -> str:
    """Return the exception's class name without its module."""
    name = event.fields.get("type") or event.fields.get("name") or event.text.split(":", 1)[0]
    return name.rsplit(".", 1)[-1]


def _qualified(event: Event) -> str:
    return event.fields.get("qualified_type") or event.fields.get("name", "")


def message_of(event: Event) -> str:
    """Return the exception's message."""
    return event.fields.get("message") or event.fields.get("why") or event.text


def _own_pipe(event: Event) -> bool:
    """Tell whether the user's own code wrote to a broken pipe (its console, a child process), not a library."""
    innermost = event.fields.get("raised_in", "").rpartition(" ")[0]
    own = event.fields.get("user_frames", "").rpartition("\n")[2]
    return bool(innermost) and own.startswith(f"{innermost}:")


class _Raised(NamedTuple):
    """An exception of which is asked whose failure it tells."""

    event: Event
    kind: str
    message: str


#: Whether an exception is the program's own, or only tells that communication with others failed.
COMMUNICATION: Table[_Raised] = Table("communication")
COMMUNICATION.by_name("own-failure")
#: Whether an exception only passes on that a child process or an engine failed.
RELAY: Table[_Raised] = Table("relay")


def _holds(found: object) -> Grounds | None:
    return ITSELF if found else None


@COMMUNICATION.condition("type-of-program")
def _type_of_program(raised: _Raised) -> Grounds | None:
    return _holds(raised.kind in _PROGRAM_TYPES)


@COMMUNICATION.condition("server-outside")
def _server_outside(raised: _Raised) -> Grounds | None:
    return _holds(_OUTSIDE.search(raised.message[:600]))


@COMMUNICATION.condition("client-without-host")
def _client_without_host(raised: _Raised) -> Grounds | None:
    return _holds(_qualified(raised.event).startswith(_CLIENTS) and "host=" not in raised.message[:600])


@COMMUNICATION.condition("refused-arguments")
def _refused_arguments(raised: _Raised) -> Grounds | None:
    return _holds(_REFUSED.match(raised.message))


@COMMUNICATION.condition("group-misused")
def _group_misused(raised: _Raised) -> Grounds | None:
    return _holds(_MISUSE.search(raised.message))


@COMMUNICATION.condition("own-pipe")
def _own_pipe_broke(raised: _Raised) -> Grounds | None:
    return _holds(raised.kind == "BrokenPipeError" and _own_pipe(raised.event))


@COMMUNICATION.condition("type-of-communication")
def _type_of_communication(raised: _Raised) -> Grounds | None:
    return _holds(raised.kind in _COMMUNICATION_TYPES)


@COMMUNICATION.condition("message-of-communication")
def _message_of_communication(raised: _Raised) -> Grounds | None:
    return _holds(_COMMUNICATION.search(f"{raised.kind}: {raised.message}"))


@RELAY.condition("type-of-launcher")
def _type_of_launcher(raised: _Raised) -> Grounds | None:
    return _holds(raised.kind in _LAUNCHER_TYPES)


@RELAY.condition("message-of-parent")
def _message_of_parent(raised: _Raised) -> Grounds | None:
    return _holds(_ENGINE.search(raised.message))


def raised_by(event: Event) -> list[Decision]:
    """Return whose failure an exception tells of: the program's own, that of a peer, that of a child."""
    raised = _Raised(event, kind_of(event), message_of(event))
    found = [COMMUNICATION.decide(raised, event), RELAY.decide(raised, event)]
    return [decision for decision in found if decision is not None] or [COMMUNICATION.decision("own-failure", event)]


def is_communication(event: Event) -> bool:
    """Tell whether an exception only reports that communication with others failed."""
    decision = COMMUNICATION.decide(_Raised(event, kind_of(event), message_of(event)))
    return decision is not None and decision.answer == "peer"


def is_launcher(event: Event) -> bool:
    """Tell whether an exception only reports that a child process or engine failed."""
    return RELAY.decide(_Raised(event, kind_of(event), message_of(event))) is not None


def tracebacks(view: View) -> list[Event]:
    """Return the tracebacks that were assembled from several lines."""
    return view.of(TRACEBACK)


def exceptions_of(view: View) -> list[Event]:
    """Return assembled tracebacks, and exception lines that belong to no traceback."""
    assembled = tracebacks(view)
    covered = LineSpans((event.source, event.line, event.last_line) for event in assembled)
    blocks = LineSpans((event.source, *(lines_of(event) or (event.line, event.last_line))) for event in assembled)
    lone = [
        e
        for e in view.of(LONE)
        if not covered.hold(e.source, e.line)
        # The line that hands on the exception of a worker is part of the traceback that ends with it.
        and not (HANDED_ON.match(message_of(e)) and blocks.hold(e.source, e.line))
    ]
    ends = {(e.fields.get("last_type"), e.fields.get("last_message", "")[:80]) for e in assembled}
    lone = [e for e in lone if (kind_of(e), message_of(e)[:80]) not in ends]
    return sorted([*assembled, *lone, *_logged(view, assembled)], key=view.position)


def _logged(view: View, assembled: list[Event]) -> list[Event]:
    """Return records of errors whose exception is that of the process that printed them, and shown nowhere else."""
    shown = {
        (event.source, event.line) for event in view.of("exception") if event.signature not in (*LOGGED, TRACEBACK)
    }
    blocks = LineSpans(
        (event.source, (lines_of(event) or (event.line, 0))[0] - _ABOVE, event.last_line) for event in assembled
    )
    raised = set()
    for event in assembled:
        raised |= {(view.rank(event), kind) for kind in (kind_of(event), event.fields["last_type"])}
    return [
        e
        for e in view.of(*LOGGED)
        if not ((e.source, e.line) in shown or blocks.hold(e.source, e.line))
        and (view.rank(e), kind_of(e)) not in raised
        and not _quoted(view, e)
    ]


def _quoted(view: View, event: Event) -> bool:
    """Tell whether a record reports an exception of another process than the one that printed it."""
    head = event.text.partition(event.fields["name"])[0]
    own = {str(number) for number in (view.rank(event), event.context.pid) if number is not None}
    return any(found["number"] not in own for found in _OF_OTHER.finditer(head))


def application_exceptions(view: View) -> list[Event]:
    """Return exceptions that are neither about communication nor about a child process, in order."""
    found = [e for e in exceptions_of(view) if not is_communication(e) and not is_launcher(e) and not _harmless(e)]
    return (
        [e for e in found if kind_of(e) not in _ORPHANS]
        if view.having("exception.frame", stands="before-start")
        else found
    )


def _harmless(event: Event) -> bool:
    return kind_of(event).endswith(("Warning", "StopIteration")) or event.context.level in ("W", "WARNING", "INFO")
