"""What single lines of Python tracebacks say: frames, exceptions, headers above them, and what may follow a message.

Formats: CPython ``traceback.py``, Ray ``exceptions.py``, torch.multiprocessing, torch.distributed, Hydra.
"""

from __future__ import annotations

import re

from nccl_triage.lazy_regex import lazily

_STARTS = ("(most recent call last):", "Original Traceback")
FRAME = lazily(r'\s*(?:\+ |\| )*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,? in (?P<function>\S.{0,200}?))?\s*$')
EXCEPTION = lazily(
    r"(?P<type>(?:[A-Za-z_][\w]*\.)*(?:Exception(?=: ?\S)|[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Warning|Killed|NotMet|Mismatch"
    r"|Empty|Full|Timeout|Abort(?:ed)?|StopIteration|StopAsyncIteration|Fault|Failure|Failed|Group|Expired|Signal\w{0,60}|Invalid\w{0,60})))"
    r"(?:\((?P<inner>[\w.]+)\))?(?:: ?(?P<message>.*))?$"
)
CUSTOM_EXCEPTION = lazily(r"(?P<type>(?:[A-Za-z_]\w*\.)+[A-Z]\w*)(?:: (?P<message>.*))?$")
RAY_HEADER = lazily(r"ray::(?P<task>[^\s(]{1,300})\(\) \(pid=(?P<pid>\d{1,18}), ip=(?P<ip>[^,)\s]{1,80})")
DIRECT_CAUSE = "The above exception was the direct cause of the following exception:"
DURING_HANDLING = "During handling of the above exception, another exception occurred:"
#: The installed package to which a file belongs.
_PACKAGE = lazily(r"(?:site|dist)-packages/(?P<package>\w+)")
#: A package in a checkout of its repository, which has the package's name: ``/workspace/verl/verl/``, ``/sglang/python/sglang/``.
_CHECKOUT = lazily(r"(?i)/(?P<package>[a-z]\w{1,40})(?:-\w{1,20})?/(?:python/|src/)?(?P=package)/")
#: Frameworks that people start from a checkout without changing them.
_FRAMEWORKS = frozenset({
    "accelerate", "areal", "axolotl", "colossalai", "deepspeed", "diffusers", "fastchat", "fairseq", "gpt_neox", "llamafactory",
    "llava", "lmdeploy", "megatron", "mmdet", "mmengine", "nemo", "nemo_rl", "openrlhf", "paddlenlp", "peft", "prime_rl", "ray",
    "sglang", "skyrl", "slime", "swift", "torchtitan", "torchtune", "transformers", "trl", "ultralytics", "verl", "vllm",
})  # fmt: skip
#: Code that is not the user's own, with the scripts that installed packages put beside the interpreter.
LIBRARY = lazily(
    r"(?:site|dist)-packages/|lib/python\d|<frozen|<string>|<stdin>|/python/ray/|/pytorch/torch/|runpy\.py|/bin/[\w-]+$"
)
#: A call of torch.distributed in the source line of a frame.
COLLECTIVE = lazily(r"\b(?:torch\.distributed|distributed|torch_dist|dist)\.(\w{4,40})\(")
_ARGUMENTS = lazily(r"(?P<all>[^()]{0,120}(?:\([^()]{0,60}\)[^()]{0,120}){0,4})\)\s{0,4}$")
_INNER = lazily(r"\([^()]{0,60}\)")
#: Frames below which a batch is fetched and put together: of torch, and of libraries that stream data sets.
LOADING = lazily(
    r"torch/utils/data/_utils/(?:fetch|collate)\.py \w|\btransformers/data/data_collator\.py \w"
    r"|\b(?:webdataset|torchdata|streaming/base|datasets)/[\w/]{1,80}\.py (?:__(?:getitem|iter|next)__|_?getitem|get_item|_iter\w{0,40}|prepare_shard)$"
)
#: torch.multiprocessing.spawn hands on a child's traceback below this line.
SPAWNED = lazily(r"-- Process (\d{1,6}) terminated with the following (?:error|exception):")
#: torch.distributed.checkpoint hands all ranks' tracebacks to every rank; a rank's begins with "(RANK 2)".
GATHERED = lazily(r"\(most recent call last\): \(RANK (\d{1,7})\)\s*$")
#: Ray Train's controller shows what a rank raised below this line (ray/train/v2/_internal/exceptions.py).
SNIPPET = lazily(r"\[Rank (\d{1,7}) Error Snippet\]:")
#: torch.distributed.rpc raises what a worker raised, with the worker's id, which is its rank.
REMOTE = lazily(r"(?:\w{1,80}: )?On WorkerInfo\(id=(\d{1,7}), name=")
CODE_LINE = lazily(r"^\s+\S|^\s*[\^~]+\s*$|^\s*$")

#: What the interpreter prints above a traceback that it ignores: in destructors, weak references, callbacks at exit
#: (CPython ``_PyErr_WriteUnraisableMsg``; ``atexit._run_exitfuncs`` before 3.12).
_IGNORED = lazily(
    r"(?:^|: )(?:Exception ignored (?:in|while|on)\b|Error in atexit\._run_exitfuncs:)|--- Logging error ---$"
)
#: What an event loop prints above a traceback after which it goes on (CPython ``asyncio/base_events.py``); other event
#: loops say the first in words of their own.
_GOES_ON = lazily(
    r"^(?:Unhandled exception (?:on|in) [\w.]{1,80}$|(?:Task|Future) exception was never retrieved|Exception in callback )"
)
#: Hydra prints this above the traceback of the program that it ran, without the frame of the module.
EXECUTING = "Error executing job with overrides:"
#: A logger's record, which may stand in front of the traceback's own header.
RECORD = lazily(
    r"^(?:(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b|[IWEF]\d{4} |\[?\d{4}-\d{2}-\d{2}[T :]\d|\d{2}:\d{2}:\d{2}\b"
    r"|srun: |slurmstepd: |\+ \S|Set the environment variable HYDRA_FULL_ERROR)"
)
#: Where an exception ends that nobody caught: in the module that is run, or where a process or thread begins.
_OUTERMOST = ("<module>", "_run_module_as_main", "_run_code", "spawn_main", "_bootstrap")

#: What ``torch`` raises for an exception of a worker or replica, above the original (``ExceptionWrapper.reraise``).
HANDED_ON = lazily(r"Caught \w{1,80} in ")
#: A message of which there is more on the next line: pydantic names the field there.
MORE = lazily(r"(?:[:,(\\-]|\bvalidation errors? for [\w.]{1,120})\s*$")
#: Ranks of one host whose last words may stand in one line.
MAX_AT_ONCE = 8

_NEW_RECORD = ("Traceback", "[", "(", "INFO", "WARNING", "=====", "-----")
#: What ``multiprocessing`` and ``threading`` print above the traceback of a child process or a thread.
_CHILD = lazily(r"^(?:Process|Exception in thread) [^\n]{1,120}:$")
_NCCL_DETAIL = lazily(r"^nccl\w+(?:Error|Usage|Argument): |^Last error:$")
#: What NCCL gives as its last error: it belongs to an exception of NCCL only, else another rank of the host says it.
_NCCL_LAST = lazily(
    r"^(?:socket(?:Progress|Poll|Start|Finali[sz]e|Try|Wait)\w{0,30}|ncclSocket\w{1,30}|NET/\w{1,20}|Net) ?: |^Call to \w{1,40} (?:from|to|failed)\b"
)


def of_all_ranks(name: str, arguments: str) -> bool:
    """Tell whether a call of a collective passes no process group, by the source line behind its opening bracket.

    Only a barrier takes the group first; the others take it third.
    """
    found = _ARGUMENTS.match(arguments)
    if found is None or "group" in found["all"] or "mesh" in found["all"]:
        return False
    if name in ("barrier", "monitored_barrier"):
        return not found["all"].strip()
    return _INNER.sub("", found["all"]).count(",") <= 1


def starts_traceback(text: str) -> bool:
    """Tell whether a traceback begins at a line."""
    if "Exception raised from" in text or "C++ Traceback" in text:
        return False  # C++ stacks: one is folded by the caller, Paddle's handler of signals prints the other
    if "Traceback (most" in text or text.startswith("Original Traceback"):
        return any(start in text for start in _STARTS)
    return text.lstrip().startswith(("ray::", "ray.exceptions.")) and bool(RAY_HEADER.search(text))


def is_record(text: str) -> bool:
    """Tell whether a line is a record of a logger, with its level or time in front."""
    return RECORD.match(text) is not None


def fate_below(text: str) -> str | None:
    """Return the fate that a line states for the traceback below it; None for most lines."""
    if EXECUTING in text:
        return "uncaught"
    if _IGNORED.search(text):
        return "ignored"
    return "logged" if _GOES_ON.search(text) else None


def fate_of(outermost: re.Match[str] | None) -> str | None:
    """Return the fate that the outermost frame of a traceback tells of: ``uncaught``, ``handled`` or None.

    A traceback begins at the frame that catches the exception. One that begins in the body of an installed module was
    caught there, while the module was imported; the program that imports it went on.
    """
    if outermost is None or (function := outermost["function"] or "<module>") not in _OUTERMOST:
        return None
    imported = function == "<module>" and _PACKAGE.search(outermost["file"]) is not None
    return "handled" if imported and not outermost["file"].endswith("__main__.py") else "uncaught"


def checkout_of(file: str) -> str | None:
    """Return the framework to whose checkout a file belongs."""
    found = _CHECKOUT.search(file)
    return name if found is not None and (name := found["package"].lower()) in _FRAMEWORKS else None


def package_inside(frames: list[re.Match[str]]) -> str | None:
    """Return the package that raised an exception if no frame is the user's own: the innermost but the standard library."""
    inside = None
    for frame in frames:
        package = _PACKAGE.search(frame["file"])
        name = package["package"] if package is not None else checkout_of(frame["file"])
        if name is None and not LIBRARY.search(frame["file"]):
            return None
        inside = name or inside
    return inside


def once(kind: str, message: str) -> tuple[str, str]:
    """Return an exception's name and message once, where several ranks printed into one line: ``KeyErrorKeyError: : 'a''a'``."""
    for times in range(2, MAX_AT_ONCE + 1):
        name = kind[: len(kind) // times]
        if len(name) >= len("Error") and name * times == kind:
            rest = message.lstrip(": ")
            once = rest[: len(rest) // times]
            return name, once if once * times == rest else rest
    return kind, message


def continues_message(message: str, stripped: str, raw: str) -> bool:
    """Tell whether a line can be the continuation of an exception's message."""
    if raw.startswith((" ", "\t")) or not message:
        return True
    if _NCCL_DETAIL.match(stripped) or _NCCL_LAST.match(stripped):
        return "nccl" in message.lower()
    last = message.splitlines()[-1].rstrip()
    if last.endswith("Last error:"):
        return True
    if (
        EXCEPTION.match(stripped)
        or stripped.startswith(_NEW_RECORD)
        or RECORD.match(stripped)
        or _CHILD.match(stripped)
    ):
        return False
    return last.endswith((":", ",", "(", "-", "\\")) or len(message.splitlines()) < 3
