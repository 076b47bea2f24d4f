"""Reads rules that recognise text by a pattern: signatures of log lines, and activities of stack frames."""

from __future__ import annotations

from nccl_triage.engine import expression
from nccl_triage.engine.fields import bilingual, identifier, optional_text, text_list, text_mapping
from nccl_triage.engine.functions import VALUE_FUNCTIONS
from nccl_triage.engine.nodes import Node
from nccl_triage.engine.pattern import Pattern, pattern_of
from nccl_triage.engine.regex_analysis import Anchors
from nccl_triage.engine.rule_cache import AnchorTable
from nccl_triage.engine.schema import NAMED, ROLES, STANDS, Activity, CulpritFields, Signature
from nccl_triage.observations.kinds import KINDS


def read_signature(node: Node, program: str, user: bool, table: AnchorTable | None = None) -> Signature:
    """Return the signature that a node describes; ``table`` holds the literals of patterns."""
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
    keep_by = text_list(part, "keep_by")
    for name in keep_by:
        if f"(?P<{name}>" not in pattern.source:
            raise part["keep_by"].fail("{name!r} is not a named group of the pattern", name=name)
    codes = optional_text(part, "codes")
    if codes is not None and f"(?P<{codes}>" not in pattern.source:
        raise part["codes"].fail("{name!r} is not a named group of the pattern", name=codes)
    sets = text_mapping(part, "sets")
    for name in sets:
        if f"(?P<{name}>" in pattern.source:
            raise part["sets"].fail("{name!r} is a named group of the pattern already", name=name)
    premise = None
    if "premise" in part:
        premise = expression.parse(part["premise"].text(), part["premise"].where, set(VALUE_FUNCTIONS))
        for name in sorted(premise.fields()):
            if f"(?P<{name}>" not in pattern.source:
                raise part["premise"].fail("{name!r} is not a named group of the pattern", name=name)
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
        source=optional_text(part, "source"),
        since=optional_text(part, "since"),
        until=optional_text(part, "until"),
        raw_line="on" in part and part["on"].choice(("message", "line")) == "line",
        anchors=anchors,
        keep_by=keep_by,
        codes=codes,
        sets=sets,
        premise=premise,
        culprit=_culprit_fields(part["culprit"], pattern, user) if "culprit" in part else None,
        overlaps=text_list(part, "overlaps"),
        match_samples=tuple(part["match"].texts()),
        not_samples=tuple(part["not"].texts()),
    )


def _culprit_fields(node: Node, pattern: Pattern, user: bool) -> CulpritFields:
    part = node.keys(("why",), (*NAMED, "within"))
    found = {name: part[name].text() for name in NAMED if name in part}
    if not {"rank", "host"} & set(found):
        raise node.fail("a culprit needs one of {names}", names="rank, host")
    for name, group in found.items():
        if f"(?P<{group}>" not in pattern.source:
            raise part[name].fail("{name!r} is not a named group of the pattern", name=group)
    return CulpritFields(found, bilingual(part["why"], user), part["within"].integer() if "within" in part else 0)


def read_activity(node: Node, user: bool) -> Activity:
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
