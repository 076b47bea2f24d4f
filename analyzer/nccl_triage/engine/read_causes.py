"""Reads causes with their evidence, fixes, checks, experiments and stages, and evidence that a record may lack."""

from __future__ import annotations

from collections.abc import Mapping

from nccl_triage.engine.fields import (
    Part,
    bilingual,
    command,
    commands,
    condition,
    flag,
    identifier,
    optional_bilingual,
    optional_condition,
    optional_text,
    status,
    text_list,
    text_mapping,
)
from nccl_triage.engine.nodes import ErrorCollector, Node
from nccl_triage.engine.schema import (
    FAMILIES,
    LANGUAGES,
    WEIGHTS,
    Cause,
    Evidence,
    Experiment,
    Fix,
    Headline,
    MissingEvidence,
    NextCheck,
    Step,
    Treatment,
)
from nccl_triage.errors import RuleError

EXPERIMENTS = ("replay", "reach", "store", "pairs", "single", "environment", "versions", "memory", "none")
#: What settles a cause without a collective: versions of NCCL, ranks and GPUs of a host, whether a port is free.
CHECKS = ("nccl-versions", "gpus", "port")
#: Which ranks a control runs on: all of the job, those of one host, those of at least two hosts, each rank alone.
SCOPES = ("all", "host", "hosts", "rank")
BACKENDS = ("any", "nccl")
#: What a control that passes says about the cause.
PASSING = ("refutes", "supports", "nothing", "not-reproduced")
#: What a treatment may change besides variables of the environment, and the words for the new value.
VARIABLES = {
    "interface": ("reachable",),
    "placement": ("one-host",),
    "members": ("without-culprit",),
    "size": ("small",),
    "timeout": ("longer",),
    "port": ("free",),
    "address": ("reachable",),
    "variables": ("without-suspects",),
}
#: Stages of what to do: within five minutes, within a quarter of an hour, for good.
STAGES = ("now", "soon", "lasting")
URGENCIES = ("high", "medium", "low")


def _evidence(node: Node, user: bool) -> Evidence:
    part = node.keys(("id", "weight", "says"), ("signature", "where", "when", "unless_explained", "harmless", "status"))
    if "signature" in part and not part["signature"].items():
        raise part["signature"].fail("an empty list names nothing")
    if "signature" not in part and "when" not in part:
        raise node.fail("evidence needs 'signature' or 'when'")
    if "where" in part and "signature" not in part:
        raise part["where"].fail("'where' filters events and needs 'signature'")
    return Evidence(
        id=identifier(part["id"]),
        weight=part["weight"].choice(WEIGHTS),
        says=bilingual(part["says"], user),
        where_defined=node.where,
        signatures=text_list(part, "signature"),
        where=optional_condition(part, "where"),
        when=optional_condition(part, "when"),
        unless_explained=flag(part, "unless_explained"),
        where_signatures=part["signature"].where if "signature" in part else "",
        harmless=text_list(part, "harmless"),
        status=status(part),
    )


def read_fix(node: Node, user: bool) -> Fix:
    """Return the fix that a node describes."""
    part = node.keys(("title",), ("commands", "env", "caution", "applies_to", "when", "otherwise", "references"))
    return Fix(
        title=bilingual(part["title"], user),
        commands=commands(part, "commands"),
        env=text_mapping(part, "env"),
        caution=bilingual(part["caution"], user) if "caution" in part else None,
        applies_to=optional_text(part, "applies_to"),
        when=optional_condition(part, "when"),
        otherwise="otherwise" in part and part["otherwise"].flag(),
        references=text_list(part, "references"),
        where=node.where,
    )


def _next_check(node: Node, user: bool) -> NextCheck:
    part = node.keys(("what", "if_yes", "if_no"), ("command", "rivals", "when"))
    return NextCheck(
        what=bilingual(part["what"], user),
        command=command(part["command"]) if "command" in part else None,
        if_yes=bilingual(part["if_yes"], user),
        if_no=bilingual(part["if_no"], user),
        rivals=text_list(part, "rivals"),
        when=optional_condition(part, "when"),
        where=node.where,
    )


def _headline(node: Node, user: bool) -> Headline:
    part = node.keys(("says",), ("when", "of", "anywhere"))
    return Headline(
        text=bilingual(part["says"], user),
        where=node.where,
        when=optional_condition(part, "when"),
        of=text_list(part, "of"),
        anywhere=flag(part, "anywhere"),
    )


def _treatment(node: Node) -> Treatment:
    if "env" in node.keys((), ("env", *VARIABLES)):
        part = node.keys(("env",))
        return Treatment("env", env=text_mapping(part, "env"))
    part = node.keys((), tuple(VARIABLES))
    if len(part) != 1:
        raise node.fail("a treatment changes exactly one thing")
    name, value = next(iter(part.items()))
    return Treatment(name, value.choice(VARIABLES[name]))


def _experiment(node: Node, user: bool) -> Experiment:
    part = node.keys(
        ("kind",),
        (
            *("control", "scope", "backend", "iterations", "vary", "predicts", "passing"),
            *("confirmed_if", "refuted_if", "needs", "why_not", "check", "told_by_stages"),
        ),
    )
    kind = part["kind"].choice(EXPERIMENTS)
    if kind == "none" and "why_not" not in part:
        raise node.fail("an experiment of kind none says why_not")
    return Experiment(
        kind=kind,
        control=optional_bilingual(part, "control", user),
        scope=part["scope"].choice(SCOPES) if "scope" in part else "all",
        backend=part["backend"].choice(BACKENDS) if "backend" in part else "any",
        iterations=part["iterations"].integer() if "iterations" in part else 3,
        vary=tuple(_treatment(item) for item in part["vary"].items()) if "vary" in part else (),
        predicts=text_list(part, "predicts"),
        passing=part["passing"].choice(PASSING) if "passing" in part else "refutes",
        confirmed_if=optional_bilingual(part, "confirmed_if", user),
        refuted_if=optional_bilingual(part, "refuted_if", user),
        needs=optional_bilingual(part, "needs", user),
        why_not=optional_bilingual(part, "why_not", user),
        check=part["check"].choice(CHECKS) if "check" in part else None,
        told_by_stages=flag(part, "told_by_stages"),
    )


def _step(node: Node) -> Step:
    part = node.keys((), ("what", "command", "urgency", "use", "when"))
    if ("what" in part) == ("use" in part):
        raise RuleError("a step needs 'what' or 'use', and not both", where=node.where)
    texts = part["what"].keys(LANGUAGES) if "what" in part else None
    return Step(
        what={language: texts[language].text() for language in LANGUAGES} if texts is not None else None,
        command=command(part["command"]) if "command" in part else None,
        urgency=part["urgency"].choice(URGENCIES) if "urgency" in part else None,
        use=part["use"].text() if "use" in part else None,
        when=optional_condition(part, "when"),
        where=node.where,
    )


def read_stages(node: Node) -> dict[str, tuple[Step, ...]]:
    """Return the steps of each stage; raises RuleError with file:line."""
    part = node.keys(STAGES)
    return {stage: tuple(_step(item) for item in part[stage].items()) for stage in STAGES}


#: Required and optional keys of a cause.
_CAUSE_KEYS = ("id", "family", "title", "explanation", "fixes", "next_check", "experiment")
_OPTIONAL_CAUSE_KEYS = (
    "for",
    "against",
    "explains",
    "culprit",
    "aliases",
    "stages",
    "victims_speak",
    "between_sides",
    "of_host",
    "host_wide",
    "catch_all",
    "headlines",
    "ruled_out",
)


def read_cause(root: Node, user: bool) -> Cause:
    """Return the cause that a file describes; raises all errors of the file together."""
    errors = ErrorCollector()
    part = root.mapping()
    with errors.collecting():
        part = root.keys(_CAUSE_KEYS, _OPTIONAL_CAUSE_KEYS)

    def rows(key: str) -> tuple[Evidence, ...]:
        return errors.each(part[key].items() if key in part else (), lambda node: _evidence(node, user))

    evidence, against = rows("for"), rows("against")
    fixes = errors.each(part["fixes"].items() if "fixes" in part else (), lambda node: read_fix(node, user))
    with errors.collecting():
        _unique(evidence + against)
    headlines = errors.each(_items(part, "headlines"), lambda node: _headline(node, user))
    checks = errors.each(_items(part, "next_check"), lambda node: _next_check(node, user))
    experiments = errors.each(_one(part, "experiment"), lambda node: _experiment(node, user))
    with errors.collecting():
        if checks and checks[-1].when is not None:
            raise part["next_check"].fail("the last check is for every log and has no 'when'")
    errors.raise_collected()
    return Cause(
        id=identifier(part["id"]),
        family=part["family"].choice(FAMILIES),
        title=bilingual(part["title"], user),
        explanation=bilingual(part["explanation"], user),
        where=root.where,
        evidence=evidence,
        against=against,
        explains=text_list(part, "explains"),
        culprit=text_list(part, "culprit"),
        fixes=fixes,
        checks=tuple(checks),
        experiment=experiments[0],
        aliases=text_list(part, "aliases"),
        stages=read_stages(part["stages"]) if "stages" in part else {},
        victims_speak=flag(part, "victims_speak"),
        between_sides=flag(part, "between_sides"),
        of_host=flag(part, "of_host"),
        host_wide=flag(part, "host_wide"),
        catch_all=flag(part, "catch_all"),
        headlines=headlines,
        ruled_out=optional_condition(part, "ruled_out"),
        places={name: node.where for name, node in part.items()},
    )


def _one(part: Part, key: str) -> list[Node]:
    """Return the node of a key as a list, which is empty if the key is missing."""
    return [part[key]] if key in part else []


def _items(part: Part, key: str) -> list[Node]:
    """Return the nodes of a list, which is empty if the key is missing; a mapping is a list of one."""
    if key not in part:
        return []
    return [part[key]] if isinstance(part[key].value, dict) else list(part[key].items())


def _unique(items: tuple[Evidence, ...]) -> None:
    seen: set[str] = set()
    for item in items:
        if item.id in seen:
            raise RuleError("the evidence id {id!r} is listed twice", where=item.where_defined, id=item.id)
        seen.add(item.id)


def read_missing_evidence(node: Node, user: bool) -> MissingEvidence:
    """Return the missing evidence that a node describes."""
    part = node.keys(("id", "when", "what", "why"), ("families", "env", "commands"))
    families = part["families"].items() if "families" in part else []
    return MissingEvidence(
        id=identifier(part["id"]),
        when=condition(part["when"]),
        what=bilingual(part["what"], user),
        why=bilingual(part["why"], user),
        where=node.where,
        families=tuple(family.choice(FAMILIES) for family in families),
        env=text_mapping(part, "env"),
        commands=text_list(part, "commands"),
    )


def share_consequences(causes: dict[str, Cause]) -> None:
    """Let causes that name another cause under ``explains`` explain the same lines as that one."""
    for name, cause in list(causes.items()):
        if any(one in causes for one in cause.explains):
            causes[name] = cause._replace(explains=tuple(_consequences(causes, cause)))


def _consequences(causes: Mapping[str, Cause], cause: Cause) -> dict[str, None]:
    """Return the signatures that a cause explains, including those of the causes that it names."""
    found: dict[str, None] = {}
    seen, pending = {cause.id}, list(cause.explains)
    while pending:
        one = pending.pop(0)
        if one not in causes:
            found[one] = None
        elif one not in seen:
            seen.add(one)
            pending = [*causes[one].explains, *pending]
    return found
