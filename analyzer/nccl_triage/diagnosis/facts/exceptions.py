"""Python exceptions: which one is an application's own fault and came first, and which only report a broken peer."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.events import Event
from nccl_triage.parsers.tracebacks import TRACEBACK
from nccl_triage.patterns import lazily

#: The general pattern of a line that names an exception: others of the kind know its words.
LONE = "python.exception_line"

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
    r"timed? ?out|Timed out|wait timeout|store_based_barrier|remote process exited|[Aa]pplication timeout caused pair closure|"
    r"[Uu]nable to find address for|connectFullMesh|No route to host|Network is unreachable|"
    r"this error originated at tensorpipe|RPC ran for more than set timeout|exhausted (?:all )?inputs|"
    r"monitoredBarrier|Detected mismatch between collectives|Some of the connections|process group|TCPStore|recvValue failed"
)
#: A call that was refused for its arguments speaks of process groups, too.
_REFUSED = lazily(
    r"ProcessGroup\w{2,12} ?:: ?\w{2,40} ?: ?(?:[Ii]nvalid|[Ii]ncorrect|[Rr]equires|[Cc]annot use|[Uu]nsupported|[Ii]nput)\b"
)
#: Exceptions of Python itself about the program's own values and names, whatever words they quote.
_PROGRAM_TYPES = {
    "KeyError", "IndexError", "AttributeError", "NameError", "UnboundLocalError", "ZeroDivisionError", "RecursionError",
    "ModuleNotFoundError", "NotImplementedError", "UnicodeDecodeError", "JSONDecodeError",
}  # fmt: skip
#: A server outside the job that did not answer (its name has a domain): no rank of the job.
_OUTSIDE = lazily(
    r"\bHTTPS?ConnectionPool\(host='(?!localhost|127\.|10\.|172\.|192\.168\.|0\.0|\[|[\w-]{1,63}')|\bendpoint URL: "
)
#: What a child of multiprocessing raises whose parent ends before it has told the child what to do.
_ORPHANS = ("UnpicklingError", "EOFError")
#: A group that was used before it was made, or made twice, is the program's own mistake.
_MISUSE = lazily(r"process group has not been initialized|initialize the default process group twice")
_NUMBER = lazily(r"\d{1,7}")
_ENGINE = lazily(r"Engine core initialization failed|See (?:root cause above|(?:the )?stack trace for (?:the )?root cause)|Failed to start GCS\b|Background loop (?:has errored|is stopped)"
                     r"|process \d{1,6} terminated with\b|failed to initialize the engine|died unexpectedly|subprocess-exited|exits? with return code")  # fmt: skip


def kind_of(event: Event) -> str:
    """Return the exception's class name without its module."""
    name = event.fields.get("type") or event.fields.get("name") or event.text.split(":", 1)[0]
    return name.rsplit(".", 1)[-1]


def message_of(event: Event) -> str:
    """Return the exception's message."""
    return event.fields.get("message") or event.fields.get("why") or event.text


def _own_pipe(event: Event) -> bool:
    """Tell whether a broken pipe was written to by the user's own code (its console, a child), not by a library."""
    innermost = event.fields.get("raised_in", "").rpartition(" ")[0]
    own = event.fields.get("user_frames", "").rpartition("\n")[2]
    return bool(innermost) and own.startswith(f"{innermost}:")


def is_communication(event: Event) -> bool:
    """Tell whether an exception only reports that communication with others failed."""
    kind, message = kind_of(event), message_of(event)
    if kind in _PROGRAM_TYPES or _OUTSIDE.search(message[:600]):
        return False
    if _REFUSED.match(message) or _MISUSE.search(message) or (kind == "BrokenPipeError" and _own_pipe(event)):
        return False
    return kind in _COMMUNICATION_TYPES or bool(_COMMUNICATION.search(f"{kind}: {message}"))


def is_launcher(event: Event) -> bool:
    """Tell whether an exception only reports that a child process or engine failed."""
    return kind_of(event) in _LAUNCHER_TYPES or bool(_ENGINE.search(message_of(event)))


def tracebacks(case: Case) -> list[Event]:
    """Return the tracebacks that were assembled from their lines."""
    return case.of(TRACEBACK)


def _heads(case: Case) -> list[Event]:
    """Return the heads of exceptions in threads: they stand before these and say no more than they do."""
    return case.having("exception.frame", stands="in-thread")


def exceptions_of(case: Case) -> list[Event]:
    """Return assembled tracebacks, and exception lines that belong to none of them."""
    assembled = tracebacks(case)
    covered = {(event.source, line) for event in assembled for line in range(event.line, event.last_line + 1)}
    lone = [e for e in case.of(LONE) if (e.source, e.line) not in covered]
    ends = {(e.fields.get("last_type"), e.fields.get("last_message", "")[:80]) for e in assembled}
    lone = [e for e in lone if (kind_of(e), message_of(e)[:80]) not in ends]
    return sorted([*assembled, *lone], key=case.position)


def application_exceptions(case: Case) -> list[Event]:
    """Return exceptions that are neither about communication nor about a child's failure, in order."""
    found = [e for e in exceptions_of(case) if not is_communication(e) and not is_launcher(e) and not _harmless(e)]
    return (
        [e for e in found if kind_of(e) not in _ORPHANS]
        if case.having("exception.frame", stands="before-start")
        else found
    )


def _harmless(event: Event) -> bool:
    return kind_of(event).endswith(("Warning", "StopIteration")) or event.context.level in ("W", "WARNING", "INFO")


@fact("exception.application", "the type of the first exception that is an application's own, not a victim's")
def _first(case: Case) -> Fact | None:
    found = application_exceptions(case)
    if not found:
        return None
    return Fact(kind_of(found[0]), [found[0]])


@fact("exception.message", "the message of the first application exception")
def _message(case: Case) -> Fact | None:
    found = application_exceptions(case)
    return Fact(message_of(found[0]), [found[0]]) if found else None


@fact("exception.ranks", "the ranks that raised an application exception, the first one first")
def _ranks(case: Case) -> Fact | None:
    found = application_exceptions(case)
    ranks = list(dict.fromkeys(r for e in found if (r := case.rank(e)) is not None))
    return Fact(ranks, found[:3]) if found else None


@fact("exception.one_rank", "exactly one rank raised an application exception while others failed or waited")
def _one_rank(case: Case) -> Fact | None:
    found = application_exceptions(case)
    ranks = {r for e in found if (r := case.rank(e)) is not None}
    others = {r for e in case.events if e.role == "cascade" and (r := case.rank(e)) is not None} - ranks
    return Fact(len(ranks) == 1 and bool(others), found[:1]) if found else None


@fact("exception.all_ranks", "every rank with output raised the same application exception")
def _all_ranks(case: Case) -> Fact | None:
    found = application_exceptions(case)
    if not found:
        return None
    first = kind_of(found[0])
    ranks = {r for e in found if kind_of(e) == first and (r := case.rank(e)) is not None}
    known = set(case.identity.ranks)
    return Fact(len(ranks) > 1 and ranks >= known, found[:2])


@fact(
    "exception.without_end", "a Python traceback or a frame of one stands after all progress, and no exception follows"
)
def _without_end(case: Case) -> Fact | None:
    found = case.having("exception.frame", language="python")
    if not found or exceptions_of(case):
        return None
    last = max((case.position(e) for e in case.events if e.role == "progress"), default=-1)
    after = [event for event in found if case.position(event) > last]
    return Fact(True, after[:2]) if after else None


@fact(
    "exception.thread_ranks", "the rank of which a thread died of an application exception, before the others timed out"
)
def _thread_ranks(case: Case) -> Fact | None:
    heads = _heads(case)
    found = application_exceptions(case)[:1]
    if not found or not any(h.source == found[0].source and 0 < found[0].line - h.line < 200 for h in heads):
        return None
    rank = case.rank(found[0])
    ranks = [rank] if rank is not None else case.value("progress.stalled_ranks") or []
    return Fact(ranks, [heads[0], found[0]]) if len(ranks) == 1 else None


@fact("exception.checkpoint_ranks", "the ranks in which reading or writing a distributed checkpoint failed, if not all")
def _checkpoint_ranks(case: Case) -> Fact | None:
    found = case.having("exception", "ranks", about="checkpoint")
    ranks = sorted({int(number) for event in found for number in _NUMBER.findall(event.fields["ranks"])})
    return Fact(ranks, found[:2]) if ranks and set(case.identity.ranks) - set(ranks) else None


@fact("exception.user_frame", "the innermost frame of the user's own code in the first application exception")
def _frame(case: Case) -> Fact | None:
    for event in application_exceptions(case)[:1]:
        frames = event.fields.get("user_frames")
        if frames:
            return Fact(frames.splitlines()[-1], [event])
    return None


@fact("exception.raised_in", "file and function in which the first application exception was raised, library code too")
def _raised_in(case: Case) -> Fact | None:
    for event in application_exceptions(case)[:1]:
        if event.fields.get("raised_in"):
            return Fact(event.fields["raised_in"], [event])
    return None


@fact("exception.while_loading", "the first application exception was raised while a batch of data was fetched")
def _while_loading(case: Case) -> Fact | None:
    return next((Fact(True, [event]) for event in application_exceptions(case)[:1] if "loading" in event.fields), None)


@fact("exception.frames", "file names and functions of the user's frames in any exception, as one text")
def _frames(case: Case) -> Fact | None:
    found = [e for e in exceptions_of(case) if e.fields.get("user_frames")]
    return Fact("\n".join(e.fields["user_frames"] for e in found), found[:2]) if found else None


@fact("exception.communication_only", "all exceptions report broken communication only")
def _communication_only(case: Case) -> Fact | None:
    found = [e for e in exceptions_of(case) if not is_launcher(e)]
    return Fact(all(is_communication(e) for e in found), found[:2]) if found else None


@fact("exception.before_cascade", "an application exception stands before every symptom of another rank")
def _before(case: Case) -> Fact | None:
    found = application_exceptions(case)
    if not found or not case.order_known:
        return None
    rank = case.rank(found[0])
    cascade = [e for e in case.events if e.role == "cascade" and e.signature not in (TRACEBACK, LONE) and e.kind != "exception.frame"
               and (case.rank(e) != rank or rank is None)]  # fmt: skip
    first = min((case.position(e) for e in cascade), default=len(case.events) + 1)
    return Fact(case.position(found[0]) < first, found[:1])
