"""Checks what a cause needs besides names that exist: evidence, advice at every stage, both languages, harmless texts.

Some of it is asked of shipped causes alone: one of a user's own may be in one language and have no stages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import PurePath

from nccl_triage.checks import knowledge
from nccl_triage.checks.fields import nearest
from nccl_triage.checks.problem import RuleProblem
from nccl_triage.engine.expression import Expression
from nccl_triage.engine.match import expand
from nccl_triage.engine.read_causes import STAGES
from nccl_triage.engine.schema import Cause, Evidence, PlatformCommand, RuleSet, Text
from nccl_triage.knowledge import catalogue
from nccl_triage.lazy_regex import lazily

#: Commands that cannot be taken back, or that hit what is not the job's own.
DESTRUCTIVE = lazily(
    r"(?:^|[;&|(]|\bsudo|\bxargs)\s*(?:rm|kill|killall|pkill|reboot|shutdown|mkfs\S*|dd|scancel|truncate|modprobe|iptables|"
    r"ip link set|systemctl (?:re)?start|systemctl stop|docker rm|ray stop|kubectl delete|nvidia-smi --gpu-reset)\b"
    r"|>\s*/dev/(?!null)"
)
#: Shared steps that start the job again, and what those say that save its evidence.
_RESTARTS, _SAVES = ("restart-without-host", "restart-from-checkpoint"), "save"
_STRONG = ("strong", "decisive")
#: Wordings of a message that are signatures of their own, besides those named ``X`` and ``X_old``.
_WORDINGS = (frozenset(("nccl.sock_retries_exceeded", "nccl.sock_retry_count_exceeded")),)


def _error(where: str, rule: str, message: str) -> RuleProblem:
    return RuleProblem("error", where, rule, message)


def check(rules: RuleSet, findings: Collection[str]) -> list[RuleProblem]:
    """Return what causes lack; ``findings`` are the kinds of findings of the verifier."""
    found: list[RuleProblem] = []
    aliases = {alias: cause.id for cause in rules.causes.values() for alias in cause.aliases}
    for cause in rules.causes.values():
        found += _of_any(cause, rules, findings, aliases)
        if cause.where.rpartition(":")[0] not in rules.foreign:
            found += _of_shipped(cause, rules)
    for step in catalogue.steps().values():
        found += _destroys(step.where, step.id, step.command)
    return [*found, *_wordings(rules)]


def _of_any(cause: Cause, rules: RuleSet, findings: Collection[str], aliases: dict[str, str]) -> Iterator[RuleProblem]:
    if not cause.evidence:
        message = "has no evidence: write rows under 'for', or name it under 'supports' of a signature"
        yield _error(cause.where, cause.id, message)
    if not cause.fixes:
        yield _error(cause.place("fixes"), cause.id, "has no fix")
    for alias in cause.aliases:
        if alias in rules.causes or aliases[alias] != cause.id:
            message = f"its alias {alias!r} is {rules.causes.get(alias, rules.causes[aliases[alias]]).id!r} already"
            yield _error(cause.place("aliases"), cause.id, message)
    known = {*rules.causes, *findings}
    for name in cause.experiment.predicts:
        if name not in known:
            message = f"predicts {name!r}, which is no cause and no kind of finding{nearest(name, known)}"
            yield _error(cause.place("experiment"), cause.id, message)
    for step in cause.stages.get("now", ()):
        yield from _destroys(step.where, cause.id, step.command)


def _destroys(where: str, rule: str, command: PlatformCommand | None) -> Iterator[RuleProblem]:
    for _, text in command.choices if command is not None else ():
        if DESTRUCTIVE.search(text):
            yield _error(where, rule, f"what is done at once must destroy nothing: {text}")


def _of_shipped(cause: Cause, rules: RuleSet) -> Iterator[RuleProblem]:
    path = cause.where.rpartition(":")[0]
    if path != f"rules/causes/{cause.family}/{cause.id}.yaml":
        yield _error(cause.where, cause.id, f"belongs into rules/causes/{cause.family}, the folder of its family")
    missing = [stage for stage in STAGES if not cause.stages.get(stage)]
    if missing:
        message = f"has no step under 'stages' for {', '.join(missing)}: say what to do at once, soon and permanently"
        yield _error(cause.place("stages"), cause.id, message)
    yield from _restarts_unsaved(cause)
    if cause.experiment.kind != "none":
        for name in ("control", "confirmed_if"):
            if getattr(cause.experiment, name) is None:
                yield _error(cause.place("experiment"), cause.id, f"its experiment does not say {name!r}")
    for where, text in _texts(cause):
        yield from knowledge.languages(where, cause.id, (text,))
    for item in cause.evidence:
        yield from _harmless(cause, item)


def _restarts_unsaved(cause: Cause) -> Iterator[RuleProblem]:
    steps = cause.stages.get("now", ())
    restart = next((at for at, step in enumerate(steps) if step.use in _RESTARTS), None)
    if restart is None or cause.experiment.kind == "none":
        return  # what no experiment confirms is proven by the log that there is
    before = [step.use or (step.what or {}).get("en", "").lower() for step in steps[:restart]]
    if not any(_SAVES in text for text in before):
        place = steps[restart].where
        yield _error(place, cause.id, "restarts the job before a step saves its evidence: put 'use: save-..' before it")


def _texts(cause: Cause) -> Iterator[tuple[str, Text]]:
    """Yield the texts of a cause with where they are, but for headlines, which may be placeholders alone."""
    for name, text in (("title", cause.title), ("explanation", cause.explanation)):
        yield cause.place(name), text
    for item in (*cause.evidence, *cause.against):
        yield item.where_defined, item.says
    for fix in cause.fixes:
        yield from ((fix.where, text) for text in (fix.title, fix.caution) if text is not None)
    for one in cause.checks:
        yield from ((one.where, text) for text in (one.what, one.if_yes, one.if_no))
    yield from ((step.where, step.what) for stage in cause.stages.values() for step in stage if step.what is not None)
    experiment = cause.experiment
    written = (experiment.control, experiment.confirmed_if, experiment.refuted_if, experiment.needs, experiment.why_not)
    yield from ((cause.place("experiment"), text) for text in written if text is not None)


def _harmless(cause: Cause, item: Evidence) -> Iterator[RuleProblem]:
    """Yield the strong rows on fields, and the decisive ones on conditions, that say of no text that they do not hold for it.

    Producers, whose events are no lines of a log, have tests of their own.
    """
    if item.harmless or "/producers/" in item.where_defined:
        return
    rule = f"{cause.id}/{item.id}"
    if item.weight in _STRONG and item.where is not None:
        message = (
            "a strong row that asks for fields needs a text under 'harmless': the message with equal or harmless fields"
        )
        yield _error(item.where_defined, rule, message)
    elif item.weight == "decisive" and item.when is not None and not _settled_elsewhere(item.when):
        message = "a decisive row with a condition needs a text under 'harmless': the message where it proves nothing"
        yield _error(item.where_defined, rule, message)


def _settled_elsewhere(when: Expression) -> bool:
    """Tell whether a condition rests on logs beside that of the job, which no text can hold."""
    return "gpu.undated_xid" in when.literals("fact")


def _wordings(rules: RuleSet) -> Iterator[RuleProblem]:
    """Yield the shipped conditions that name one wording of a message and not the other one."""
    every = [frozenset((name, f"{name}_old")) for name in rules.signatures if f"{name}_old" in rules.signatures]
    every += [both for both in _WORDINGS if both <= rules.signatures.keys()]
    for condition in rules.conditions():
        if condition.where.rpartition(":")[0] not in rules.foreign:
            for names in _asked(condition):
                ids = {one for name in names for one in expand(name, rules.kinds)}
                for both in every:
                    if ids & both and not both <= ids:
                        name, other = (", ".join(sorted(one)) for one in (ids & both, both - ids))
                        message = f"names {name} and not {other}, the same message in other words"
                        yield _error(condition.where, PurePath(condition.where.rpartition(":")[0]).stem, message)


def _asked(condition: Expression) -> Iterable[list[str]]:
    """Return the signatures that each call of a condition asks for together."""
    return [names for function in ("has", "count") for names in condition.calls(function)]
