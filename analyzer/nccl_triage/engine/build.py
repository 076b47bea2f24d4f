"""Signatures, causes, missing evidence and activities from the nodes of rule files; every error says file:line."""

from __future__ import annotations

from nccl_triage.engine import expression, stages
from nccl_triage.engine.functions import FUNCTIONS, VALUE_FUNCTIONS
from nccl_triage.engine.nodes import Complaints, Node
from nccl_triage.engine.pattern import Pattern, pattern_of
from nccl_triage.engine.regex_analysis import Anchors
from nccl_triage.engine.rule_cache import AnchorTable
from nccl_triage.engine.schema import (
    FAMILIES,
    LANGUAGES,
    NAMED,
    ROLES,
    STANDS,
    STATUSES,
    WEIGHTS,
    Accusation,
    Activity,
    Cause,
    Evidence,
    Experiment,
    Fix,
    MissingEvidence,
    NextCheck,
    Premise,
    Signature,
    Support,
    Text,
    Treatment,
    Words,
)
from nccl_triage.engine.supports import MESSAGES
from nccl_triage.errors import RuleError
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.kinds import KINDS

_ID = lazily(r"^[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*$")
EXPERIMENTS = ("replay", "reach", "store", "pairs", "single", "environment", "versions", "memory", "none")
#: What settles a cause without a collective: versions of NCCL, ranks and GPUs of a host, whether a port is free.
CHECKS = ("nccl-versions", "gpus", "port")
#: Which ranks a control takes: all of the job, those of one host, at least two hosts, each rank alone.
SCOPES = ("all", "host", "hosts", "rank")
BACKENDS = ("any", "nccl")
#: What a passing control says of the cause.
PASSING = ("refutes", "supports", "nothing")
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


Part = dict[str, Node]


def identifier(node: Node) -> str:
    """Return an id: lower case words joined by ".", "_" or "-"."""
    text = node.text()
    if not _ID.match(text):
        raise node.fail("{text!r} is no id", "use lower case words joined by '.', '_' or '-'", text=text)
    return text


def _text(part: Part, key: str) -> str | None:
    return part[key].text() if key in part else None


def _texts(part: Part, key: str) -> tuple[str, ...]:
    return tuple(part[key].texts()) if key in part else ()


def _mapping(part: Part, key: str) -> dict[str, str]:
    return {name: node.text() for name, node in part[key].mapping().items()} if key in part else {}


def flag(part: Part, key: str) -> bool:
    """Return a value of yes or no; no where it is not given."""
    return key in part and part[key].flag()


def bilingual(node: Node, user: bool) -> Text:
    """Return a text in all languages; a user's rule may have it in English alone, as a plain text too."""
    if user and not isinstance(node.value, dict):
        return dict.fromkeys(LANGUAGES, node.text())
    parts = node.keys(LANGUAGES[:1], LANGUAGES[1:]) if user else node.keys(LANGUAGES)
    return {language: parts.get(language, parts[LANGUAGES[0]]).text() for language in LANGUAGES}


def signature(node: Node, program: str, user: bool, table: AnchorTable | None = None) -> Signature:
    """Return the signature that a node describes; ``table`` knows the literals of patterns."""
    part = node.keys(
        ("id", "kind", "role", "pattern", "meaning", "match", "not"),
        (
            "level",
            "source",
            "since",
            "until",
            "on",
            "anchors",
            "keep_by",
            "overlaps",
            "codes",
            "sets",
            "premise",
            "supports",
            "culprit",
        ),
    )
    pattern = pattern_of(part["pattern"], user)
    anchors: Anchors | None
    if "anchors" in part:
        anchors = Anchors(frozenset(part["anchors"].texts()))
    else:
        anchors = (table or AnchorTable("")).of(part["pattern"])
    if anchors is None:
        raise part["pattern"].fail(
            "no literal text of three characters or more is required by this pattern",
            "rewrite it, or name literals under 'anchors'",
        )
    keep_by = _texts(part, "keep_by")
    for name in keep_by:
        if f"(?P<{name}>" not in pattern.source:
            raise part["keep_by"].fail("{name!r} is no named group of the pattern", name=name)
    codes = _text(part, "codes")
    if codes is not None and f"(?P<{codes}>" not in pattern.source:
        raise part["codes"].fail("{name!r} is no named group of the pattern", name=codes)
    sets = _mapping(part, "sets")
    for name in sets:
        if f"(?P<{name}>" in pattern.source:
            raise part["sets"].fail("{name!r} is a named group of the pattern already", name=name)
    premise = None
    if "premise" in part:
        premise = expression.parse(part["premise"].text(), part["premise"].where, set(VALUE_FUNCTIONS))
        for name in sorted(premise.fields()):
            if f"(?P<{name}>" not in pattern.source:
                raise part["premise"].fail("{name!r} is no named group of the pattern", name=name)
    role = part["role"].choice(ROLES)
    return Signature(
        id=identifier(part["id"]),
        kind=part["kind"].choice(KINDS),
        program=program,
        pattern=pattern,
        role=role,  # type: ignore[arg-type]
        meaning=part["meaning"].text(),
        where=node.where,
        level=part["level"].text() if "level" in part else "info",
        source=_text(part, "source"),
        since=_text(part, "since"),
        until=_text(part, "until"),
        raw_line="on" in part and part["on"].choice(("message", "line")) == "line",
        anchors=anchors,
        keep_by=keep_by,
        codes=codes,
        sets=sets,
        premise=premise,
        culprit=_accusation(part["culprit"], pattern, user) if "culprit" in part else None,
        overlaps=_texts(part, "overlaps"),
        match_samples=tuple(part["match"].texts()),
        not_samples=tuple(part["not"].texts()),
    )


def _accusation(node: Node, pattern: Pattern, user: bool) -> Accusation:
    part = node.keys(("why",), (*NAMED, "within"))
    found = {name: part[name].text() for name in NAMED if name in part}
    if not {"rank", "host"} & set(found):
        raise node.fail("a culprit needs one of {names}", names="rank, host")
    for name, group in found.items():
        if f"(?P<{group}>" not in pattern.source:
            raise part[name].fail("{name!r} is no named group of the pattern", name=group)
    return Accusation(found, bilingual(part["why"], user), part["within"].integer() if "within" in part else 0)


def supports(node: Node, signature: str, user: bool) -> list[Support]:
    """Return what a signature's node says for causes."""
    listed = node.mapping().get("supports")
    return [_support(item, signature, user) for item in listed.items()] if listed is not None else []


def _support(node: Node, signature: str, user: bool) -> Support:
    part = node.keys(("cause",), ("id", "weight", "says", "unless_explained", "fix", "status"))
    weight = part["weight"].choice(WEIGHTS) if "weight" in part else None
    if "says" in part and weight is None:
        raise node.fail("the key {name!r} is missing", name="weight")
    if weight is not None and "says" not in part and ("id" in part or weight not in MESSAGES.values()):
        raise node.fail("the key {name!r} is missing", name="says")
    for name in ("unless_explained", "status"):
        if name in part and "says" not in part:
            raise part[name].fail("the key {name!r} is missing", name="says")
    if "id" in part:
        row = identifier(part["id"])
    elif "says" in part:
        row = signature.partition(".")[2].replace("_", "-")
    else:  # no words of its own
        row = next(name for name, of_row in MESSAGES.items() if weight in (None, of_row))
    return Support(
        signature=signature,
        cause=part["cause"].text(),
        id=row,
        where=node.where,
        weight=weight if "says" in part else None,
        says=bilingual(part["says"], user) if "says" in part else None,
        unless_explained=flag(part, "unless_explained"),
        fix=_fix(part["fix"], user) if "fix" in part else None,
        status=status(part),
    )


def _condition(node: Node) -> expression.Expression:
    return expression.parse(node.text(), node.where, FUNCTIONS)


def _condition_at(part: Part, key: str) -> expression.Expression | None:
    return _condition(part[key]) if key in part else None


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
        signatures=_texts(part, "signature"),
        where=_condition_at(part, "where"),
        when=_condition_at(part, "when"),
        unless_explained=flag(part, "unless_explained"),
        where_signatures=part["signature"].where if "signature" in part else "",
        harmless=_texts(part, "harmless"),
        status=status(part),
    )


def status(part: Part) -> str:
    """Return whether a row of evidence is stable or experimental; what is experimental decides nothing alone."""
    found = part["status"].choice(STATUSES) if "status" in part else STATUSES[0]
    if found == "experimental" and part["weight"].text() == "decisive":
        raise part["weight"].fail("an experimental row is strong at most")
    return found


def _fix(node: Node, user: bool) -> Fix:
    part = node.keys(("title",), ("commands", "env", "caution", "applies_to", "when", "references"))
    return Fix(
        title=bilingual(part["title"], user),
        commands=_texts(part, "commands"),
        env=_mapping(part, "env"),
        caution=bilingual(part["caution"], user) if "caution" in part else None,
        applies_to=_text(part, "applies_to"),
        when=_condition_at(part, "when"),
        references=_texts(part, "references"),
    )


def _next_check(node: Node, user: bool) -> NextCheck:
    part = node.keys(("what", "if_yes", "if_no"), ("command", "rivals"))
    return NextCheck(
        what=bilingual(part["what"], user),
        command=_text(part, "command"),
        if_yes=bilingual(part["if_yes"], user),
        if_no=bilingual(part["if_no"], user),
        rivals=_texts(part, "rivals"),
    )


def _treatment(node: Node) -> Treatment:
    if "env" in node.keys((), ("env", *VARIABLES)):
        part = node.keys(("env",))
        return Treatment("env", env=_mapping(part, "env"))
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
        control=_text(part, "control"),
        scope=part["scope"].choice(SCOPES) if "scope" in part else "all",
        backend=part["backend"].choice(BACKENDS) if "backend" in part else "any",
        iterations=part["iterations"].integer() if "iterations" in part else 3,
        vary=tuple(_treatment(item) for item in part["vary"].items()) if "vary" in part else (),
        predicts=_texts(part, "predicts"),
        passing=part["passing"].choice(PASSING) if "passing" in part else "refutes",
        confirmed_if=_text(part, "confirmed_if"),
        refuted_if=_text(part, "refuted_if"),
        needs=_text(part, "needs"),
        why_not=bilingual(part["why_not"], user) if "why_not" in part else None,
        check=part["check"].choice(CHECKS) if "check" in part else None,
        told_by_stages=flag(part, "told_by_stages"),
    )


_CAUSE = ("id", "family", "title", "explanation", "fixes", "next_check", "experiment")
_CAUSE_MAY = (
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
)


def cause(root: Node, user: bool) -> Cause:
    """Return the cause that a file describes; raises all that is wrong with it at once."""
    complaints = Complaints()
    part = root.mapping()
    with complaints.noted():
        part = root.keys(_CAUSE, _CAUSE_MAY)

    def rows(key: str) -> tuple[Evidence, ...]:
        return complaints.each(part[key].items() if key in part else (), lambda node: _evidence(node, user))

    evidence, against = rows("for"), rows("against")
    fixes = complaints.each(part["fixes"].items() if "fixes" in part else (), lambda node: _fix(node, user))
    with complaints.noted():
        _unique(evidence + against)
    next_checks = complaints.each(_one(part, "next_check"), lambda node: _next_check(node, user))
    experiments = complaints.each(_one(part, "experiment"), lambda node: _experiment(node, user))
    complaints.tell()
    return Cause(
        id=identifier(part["id"]),
        family=part["family"].choice(FAMILIES),
        title=bilingual(part["title"], user),
        explanation=bilingual(part["explanation"], user),
        where=root.where,
        evidence=evidence,
        against=against,
        explains=_texts(part, "explains"),
        culprit=_texts(part, "culprit"),
        fixes=fixes,
        next_check=next_checks[0],
        experiment=experiments[0],
        aliases=_texts(part, "aliases"),
        stages=stages.read(part["stages"]) if "stages" in part else {},
        victims_speak=flag(part, "victims_speak"),
        between_sides=flag(part, "between_sides"),
        of_host=flag(part, "of_host"),
        host_wide=flag(part, "host_wide"),
        catch_all=flag(part, "catch_all"),
        places={name: part[name].where for name in ("culprit", "explains", "next_check") if name in part},
    )


def _one(part: Part, key: str) -> list[Node]:
    """Return the node of a key, as a list that is empty where the key is missing."""
    return [part[key]] if key in part else []


def _unique(items: tuple[Evidence, ...]) -> None:
    seen: set[str] = set()
    for item in items:
        if item.id in seen:
            raise RuleError("the evidence id {id!r} stands twice", where=item.where_defined, id=item.id)
        seen.add(item.id)


def missing_evidence(node: Node, user: bool) -> MissingEvidence:
    """Return the missing evidence that a node describes."""
    part = node.keys(("id", "when", "what", "why"), ("families", "env", "commands"))
    families = part["families"].items() if "families" in part else []
    return MissingEvidence(
        id=identifier(part["id"]),
        when=_condition(part["when"]),
        what=bilingual(part["what"], user),
        why=bilingual(part["why"], user),
        where=node.where,
        families=tuple(family.choice(FAMILIES) for family in families),
        env=_mapping(part, "env"),
        commands=_texts(part, "commands"),
    )


def premise(node: Node) -> Premise:
    """Return the named condition that a node describes."""
    part = node.keys(("id", "meaning", "when"))
    return Premise(identifier(part["id"]), part["meaning"].text(), _condition(part["when"]), node.where)


def words(node: Node) -> Words:
    """Return the list of words that a node describes."""
    part = node.keys(("id", "meaning", "texts"))
    return Words(identifier(part["id"]), part["meaning"].text(), tuple(part["texts"].texts()), node.where)


def activity(node: Node, user: bool) -> Activity:
    """Return the activity that a node describes."""
    part = node.keys(("id", "stands", "frame", "meaning", "match", "not"))
    return Activity(
        id=identifier(part["id"]),
        stands=part["stands"].choice(STANDS),
        frame=pattern_of(part["frame"], user),
        meaning=part["meaning"].text(),
        where=node.where,
        match_samples=tuple(part["match"].texts()),
        not_samples=tuple(part["not"].texts()),
    )
