"""What a report advises from the knowledge: staged steps of a cause, remarks on the environment, a collective's timeout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from nccl_triage.engine.schema import Cause, Step
from nccl_triage.knowledge import amounts, catalogue, timeouts
from nccl_triage.knowledge.entries import Text

#: Stage of a cause's file -> (word in documents, urgency of a step that names none).
STAGES = {"now": ("5min", "high"), "soon": ("15min", "medium"), "lasting": ("lasting", "low")}


def _staged_step(stage: str, step: Step) -> dict[str, Any] | None:
    shared = catalogue.steps().get(step.use) if step.use is not None else None
    what = step.what or (shared.what if shared is not None else None)
    if what is None:
        return None  # a user's rule names a step that does not exist; ``rules test`` says so
    when, urgency = STAGES[stage]
    return {
        "when": when,
        "urgency": step.urgency or (shared.urgency if shared is not None else None) or urgency,
        "what": what["en"],
        "what_zh": what["zh"],
        "command": step.command or (shared.command if shared is not None else None),
    }


def staged_steps(cause: Cause, fits: Callable[[Step], bool] = lambda _: True) -> list[dict[str, Any]]:
    """Return the steps of a cause that fit, in the order in which they are taken; their commands are of any platform."""
    steps = [(stage, step) for stage in STAGES for step in cause.stages.get(stage, ()) if fits(step)]
    found = [_staged_step(stage, step) for stage, step in steps]
    return [row for row in found if row is not None]


def unknown_steps(causes: Iterable[Cause]) -> list[tuple[Cause, str]]:
    """Return the names of shared steps that causes speak of and that do not exist."""
    known = catalogue.steps()
    return [
        (cause, step.use)
        for cause in causes
        for steps in cause.stages.values()
        for step in steps
        if step.use is not None and step.use not in known
    ]


#: Maximum number of remarks in a document, and of variables checked for them.
MAX_REMARKS, MAX_VARIABLES = 30, 400


def _values(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def environment_remarks(environment: Mapping[str, Any], versions: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the remarks on a job's variables, sorted by name; warnings first when there are too many.

    ``environment`` maps a name to its value, or to the list of the values of different hosts.
    """
    if not environment:
        return []  # nothing of the catalogue is read for most logs
    from nccl_triage.knowledge.judge import judge_variable

    flat = {name: _values(value)[0] for name, value in environment.items() if _values(value)}
    found = [
        remark
        for name, value in sorted(environment.items())[:MAX_VARIABLES]
        for one in sorted(set(_values(value)))
        for remark in judge_variable(name, one, versions, flat)
        # RCCL reads names under NCCL_ that NCCL does not.
        if not (remark.kind == "unknown" and "rccl" in versions)
    ]
    kept = sorted(found, key=lambda remark: remark.level != "warn")[:MAX_REMARKS]
    return [
        {
            "name": remark.name,
            "value": remark.value[:200],
            "level": remark.level,
            "kind": remark.kind,
            "says": remark.says["en"],
            "says_zh": remark.says["zh"],
        }
        for remark in sorted(kept, key=lambda remark: (remark.name, remark.value, remark.level != "warn", remark.kind))
    ]


#: Maximum number of owners in a document.
_OWNERS = 4
#: A longer timeout in milliseconds cannot be explained by the size of a training step's message.
_LONG = 300_000

FITS = {
    "en": "The {op} moves {size}{dtype}. Even at {rate} GB/s, less than 1 Gbit/s Ethernet, it takes "
    "{needs}; the timeout is {limit}. So the size does not explain the timeout: a rank was late or missing, or the path "
    "broke.",
    "zh": "这次 {op} 传输 {size}{dtype}。即使只有 {rate} GB/s（低于 1 Gbit/s 以太网），也只需 {needs}，而超时是 {limit}。"
    "数据量解释不了这次超时：有 rank 迟到或缺席，或路径中断。",
}
TIGHT = {
    "en": "The {op} moves {size}{dtype}. At {rate} GB/s, a very slow network, it takes {needs}, longer than the "
    "timeout of {limit}. Measure the bandwidth before you blame a rank.",
    "zh": "这次 {op} 传输 {size}{dtype}。在 {rate} GB/s 的极慢网络上需要 {needs}，超过了 {limit} 的超时。在怀疑某个 rank "
    "之前，请先测量带宽。",
}
SMALL = {
    "en": "This {op} moves almost no data: only a late or missing rank, or a broken path, can explain the timeout "
    "of {limit}.",
    "zh": "这次 {op} 几乎不传输数据：只有 rank 迟到或缺席、或路径中断，才能解释 {limit} 的超时。",
}
UNSIZED = {
    "en": "The log does not show how much data this collective moves. At normal bandwidths no collective of a training step "
    "takes {limit}: look for a rank that is late or absent.",
    "zh": "日志没有显示这次集合操作的数据量。在正常带宽下，训练中的集合操作都不会耗时 {limit}：请查找迟到或缺席的 rank。",
}
SHORT = {
    "en": "The log does not show how much data this collective moves. With a timeout as short as {limit}, a large message on a "
    "slow network can be the reason. Compute it with nccl-triage timeouts --op OP --numel N.",
    "zh": "日志没有显示这次集合操作的数据量。超时只有 {limit}，慢网络上的大消息就可能超时：请用 nccl-triage timeouts --op OP "
    "--numel N 计算。",
}
ASSUMED = {"en": " (dtype unknown, {dtype} assumed)", "zh": "（数据类型未知，按 {dtype} 估算）"}


def _say(template: Text, **given: object) -> Text:
    return {
        language: text.format(**{k: v[language] if isinstance(v, dict) else v for k, v in given.items()})
        for language, text in template.items()
    }


def _number(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _message(collective: Mapping[str, Any]) -> timeouts.CollectiveTraffic | None:
    op, world, dtype = collective.get("op"), _number(collective.get("world_size")), collective.get("dtype")
    numel, out = _number(collective.get("numel_in")), _number(collective.get("numel_out"))
    if not isinstance(op, str):
        return None
    if timeouts.operation_name(op) == "BARRIER":
        return timeouts.message(op, 0, world or 2)
    if numel is not None and world:
        return timeouts.message(op, numel, world, dtype)
    return timeouts.message_of_unknown_group(op, numel, out, dtype)


def _owner_rows(milliseconds: int, known: Mapping[str, str], frameworks: Sequence[str]) -> list[dict[str, Any]]:
    knobs = catalogue.knobs()
    return [
        {
            "program": owner.program,
            "who": owner.who["en"],
            "who_zh": owner.who["zh"],
            "change": timeouts.written(knobs[owner.knob], None) if owner.knob in knobs else None,
        }
        for owner in timeouts.owners(milliseconds, known, frameworks)[:_OWNERS]
    ]


def collective_advice(
    collective: Mapping[str, Any], known: Mapping[str, str], frameworks: Sequence[str]
) -> dict[str, Any] | None:
    """Return the advice on a document's collective, or None when it shows no timeout.

    ``known`` maps programs to versions, ``frameworks`` are those that the log shows.
    """
    milliseconds = _number(collective.get("timeout_ms"))
    if not milliseconds:
        return None
    message = _message(collective)
    limit = amounts.duration(milliseconds / 1000)
    # The operation is text of the log where it is none that is known.
    op = message.op if message is not None else None
    if message is None:
        says = _say(UNSIZED if milliseconds >= _LONG else SHORT, limit=limit)
    elif message.bytes * message.factor < 1e6:
        says = _say(SMALL, op=op, limit=limit)
    else:
        assumed = {"en": "", "zh": ""} if collective.get("dtype") else _say(ASSUMED, dtype=message.dtype)
        says = _say(
            FITS if message.seconds() * 1000 < milliseconds else TIGHT,
            op=op,
            size=amounts.size(message.bytes),
            dtype=assumed,
            rate=amounts.short(timeouts.SLOW),
            needs=amounts.duration(message.seconds()),
            limit=limit,
        )
    return {
        "bytes": message.bytes if message is not None else None,
        "dtype_assumed": message.dtype if message is not None and not collective.get("dtype") else None,
        "seconds_expected": round(message.seconds(), 3) if message is not None else None,
        "owner": _owner_rows(milliseconds, known, frameworks),
        "says": says["en"],
        "says_zh": says["zh"],
    }
