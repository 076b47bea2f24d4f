"""What earned each piece of knowledge: ``rules/earned.yaml``, which ``make earned WHAT=--write`` writes.

A row of evidence, a fact, a culprit method or a signature is earned where the answers to two labelled incidents that are
no sisters are worse without it, or where a test proves what reads documents other than logs. Any other row is
*experimental*: it says so in its file and is strong at most. Older rows whose weights count although nothing has earned
them are listed under ``unearned``; none may be added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from nccl_triage import resources
from nccl_triage.checks.problem import RuleProblem
from nccl_triage.engine import nodes
from nccl_triage.engine.schema import Evidence, RuleSet
from nccl_triage.engine.supports import MESSAGES

#: What can be earned.
KINDS = ("rows", "facts", "methods", "signatures")
#: Incidents that make a piece of knowledge more than a memory of one case.
ENOUGH = 2
FILE = "earned.yaml"
#: The key of the file under which older rows stand that nothing has earned.
UNEARNED = "unearned"
#: How the claim begins that a test showed it.
TEST = "tests/"


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of knowledge: its kind, id, where it is defined, and the status that it has itself."""

    kind: str
    id: str
    where: str
    status: str | None = None


def row_id(cause: str, row: Evidence) -> str:
    """Return the id of a row of evidence; within a cause it stands once, on whichever side."""
    return f"{cause}/{row.id}"


def pieces(rules: RuleSet, facts: Iterable[str], methods: Iterable[str]) -> Iterator[Piece]:
    """Yield everything that can be earned."""
    for cause in rules.causes.values():
        for row in (*cause.evidence, *cause.against):
            yield Piece("rows", row_id(cause.id, row), row.where_defined, row.status)
    yield from (Piece("facts", name, "") for name in facts)
    yield from (Piece("methods", name, "") for name in methods)
    yield from (Piece("signatures", item.id, item.where) for item in rules.signatures.values())


def claims() -> dict[str, dict[str, tuple[str, ...]]]:
    """Return kind -> id -> what earned it: incidents as ``FOLDER/ID``, or one test."""
    part = _file()
    return {kind: {name: tuple(item.texts()) for name, item in part[kind].mapping().items()} for kind in KINDS}


def older() -> frozenset[str]:
    """Return the rows that nothing has earned and that do not have to say so."""
    part = _file()
    return frozenset(part[UNEARNED].texts()) if UNEARNED in part else frozenset()


def _file() -> dict[str, nodes.Node]:
    text = (resources.rules_dir() / FILE).read_text(encoding="utf-8")
    return nodes.parse(text, f"rules/{FILE}").keys(KINDS, (UNEARNED,))


def unearned(known: Iterable[Piece], earned: Mapping[str, Mapping[str, object]]) -> list[Piece]:
    """Return the pieces of the shipped rules that nothing has earned."""
    return [piece for piece in known if piece.id not in earned[piece.kind]]


def check(
    rules: RuleSet, known: Iterable[Piece], groups: Mapping[str, str], folders: Iterable[str]
) -> list[RuleProblem]:
    """Return the claims of the shipped rules that do not hold.

    ``groups`` has the incident of each labelled case (``FOLDER/ID``) of the folders at hand; claims on others stand.
    """
    earned, kept, at_hand = claims(), older(), tuple(f"{name}/" for name in folders)
    findings: list[RuleProblem] = []
    present: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for piece in known:
        if piece.where.partition(":")[0] in rules.foreign:
            continue
        present[piece.kind].add(piece.id)
        if piece.kind == "rows" and (wrong := _wrong_status(piece, earned["rows"], kept)):
            findings.append(RuleProblem("error", piece.where, piece.id, wrong))
    place = f"rules/{FILE}"
    gone = sorted(kept - present["rows"])
    findings += [RuleProblem("error", place, name, "there is nothing with this id in rows") for name in gone]
    for kind, ids in earned.items():
        for name, shown in ids.items():
            if name not in present[kind]:
                findings.append(RuleProblem("error", place, name, f"there is nothing with this id in {kind}"))
            lost = [one for one in shown if one.startswith(at_hand) and one not in groups]
            findings += [RuleProblem("error", place, name, f"there is no labelled case {one}") for one in lost]
            of_tests = all(one.startswith(TEST) for one in shown)
            if not of_tests and len({groups.get(one, one) for one in shown}) < ENOUGH:
                findings.append(RuleProblem("error", place, name, f"fewer than {ENOUGH} incidents that are no sisters"))
    return findings


def _wrong_status(row: Piece, earned: Mapping[str, object], kept: frozenset[str]) -> str | None:
    """Return what is wrong with the status of a row, if anything is."""
    experimental = row.status == "experimental"
    if experimental:
        return "is earned and says 'experimental'" if row.id in earned else None
    gathered = row.id.rpartition("/")[2] in MESSAGES  # a catalogue: kind and sample of each message are enough
    if gathered or row.id in earned or row.id in kept:
        return None
    return f"is in no {FILE}: write 'status: experimental' until two incidents need it"
