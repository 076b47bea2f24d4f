"""No key of a report document is forgotten: each is in the schema with a description, and readers see it or it is listed here."""

from __future__ import annotations

import copy

import pytest

from tests.document import fields

#: Keys whose values are for programs alone; no text, Markdown or HTML shows them.
MACHINES = frozenset(
    [
        "diagnoses.[].against.[].end_line",
        "diagnoses.[].against.[].signature",
        "diagnoses.[].evidence.[].end_line",
        "diagnoses.[].evidence.[].signature",
        "diagnoses.[].fixes.[].id",
        "diagnoses.[].stages.[].urgency",
        "network.total",
        "not_seen.[].id",
        "schema_version",
        "telling_lines.[].host",
        "telling_lines.[].rank",
        "telling_lines.[].score",
        "timeline.[].meaning",
        "tool.name",
        "waits.[].line",
        "waits.[].path",
        "collective.advice.bytes",
        "collective.advice.dtype_assumed",
        "collective.advice.owner.[].change",
        "collective.advice.owner.[].program",
        "collective.advice.owner.[].who",
        "collective.advice.owner.[].who_zh",
        "collective.advice.seconds_expected",
        "collective.world_size",
        "diagnoses.[].experiment.backend",
        "diagnoses.[].experiment.confirmed_if",
        "diagnoses.[].experiment.confirmed_if_zh",
        "diagnoses.[].experiment.control",
        "diagnoses.[].experiment.control_zh",
        "diagnoses.[].experiment.needs",
        "diagnoses.[].experiment.needs_zh",
        "diagnoses.[].experiment.passing",
        "diagnoses.[].experiment.refuted_if",
        "diagnoses.[].experiment.refuted_if_zh",
        "diagnoses.[].experiment.vary.[].*",
        "diagnoses.[].verification.decided_by",
        "diagnoses.[].verification.findings.[].hosts.[]",
        "diagnoses.[].verification.findings.[].kind",
        "diagnoses.[].verification.hosts.[].host",
        "diagnoses.[].verification.hosts.[].interfaces.[].loopback",
        "diagnoses.[].verification.hosts.[].own_addresses.[]",
        "diagnoses.[].verification.kind",
        "diagnoses.[].verification.notices.[].kind",
        "diagnoses.[].verification.reachability.[].answered",
        "diagnoses.[].verification.runs.[].errors.[].flight.*",
        "diagnoses.[].verification.runs.[].errors.[].slot",
        "diagnoses.[].verification.runs.[].errors.[].stage",
        "diagnoses.[].verification.runs.[].expected.references.[]",
        "diagnoses.[].verification.runs.[].finding.hosts.[]",
        "diagnoses.[].verification.runs.[].finding.kind",
        "diagnoses.[].verification.runs.[].symptoms.[].count",
        "diagnoses.[].verification.runs.[].symptoms.[].line",
        "diagnoses.[].verification.runs.[].symptoms.[].meaning",
        "diagnoses.[].verification.runs.[].symptoms.[].path",
        "diagnoses.[].verification.runs.[].symptoms.[].ranks.[]",
        "diagnoses.[].verification.runs.[].symptoms.[].role",
        "diagnoses.[].verification.runs.[].symptoms.[].signature",
        "diagnoses.[].verification.runs.[].world_size",
        "incident.first_fault.signature",
        "incident.last_progress.role",
        "incident.last_progress.signature",
        "incident.waiting_since.role",
        "incident.waiting_since.signature",
        "job.env_remarks.[].kind",
        "job.env_remarks.[].value",
        "job.ranks.[].first_error.text",
        "job.ranks.[].gpu",
        "job.ranks.[].local_rank",
        "job.ranks.[].pid",
        "last_good_step.line",
        "last_good_step.path",
        "last_good_step.step",
        "last_good_step.time",
        "outcome.line.line",
        "outcome.line.path",
        "outcome.says",
        "outcome.says_zh",
        "outcome.since",
        "runs.[].line.line",
        "runs.[].line.path",
        "runs.[].opened_by",
        "runs.[].since",
        "runs.[].started",
        "runs.[].state",
        "runs.[].to.path",
        "peers.complete",
        "peers.failed.[].from",
        "peers.failed.[].line",
        "peers.failed.[].path",
        "peers.failed.[].to",
        "peers.links.[].channels",
        "peers.links.[].from",
        "peers.links.[].gpudirect",
        "peers.links.[].to",
        "peers.names.[]",
        "peers.total",
        "peers.unit",
        "series.[].first",
        "series.[].marks.[].line",
        "series.[].marks.[].path",
        "series.[].marks.[].x",
        "series.[].not_finite_count",
        "series.[].sampled",
        "similar.[].cause",
        "similar.[].confirmed_by",
        "similar.[].score",
        "similar.[].shared.exceptions.[]",
        "similar.[].shared.signatures.[]",
        "similar.[].shared.versions.[]",
        "similar.[].shared.words.[]",
        "similar.[].title",
        "similar.[].title_zh",
    ]
)


def test_every_key_of_the_schema_is_described() -> None:
    schema = fields.schema()
    parts = {"": schema, **{f"${name}": part for name, part in schema["$defs"].items()}}
    assert [key for name, part in parts.items() for key in fields.undescribed(part, name)] == []


def test_every_key_of_a_document_is_in_the_schema() -> None:
    assert {key for document in fields.documents() for key in fields.undeclared(document)} == set()


def test_every_text_is_there_in_both_languages() -> None:
    assert {key for document in fields.documents() for key in fields.without_twin(document)} == set()


def test_every_key_is_shown_or_for_programs() -> None:
    assert fields.unseen(MACHINES) == set(), "let text, Markdown or HTML show it, or list it in MACHINES"


def test_what_is_for_programs_is_not_shown() -> None:
    assert fields.shown_after_all(MACHINES) == set(), "take it out of MACHINES"
    assert {key for document in fields.documents() for _, key in fields.values(document)} >= MACHINES


# -- the checks can fail


def test_a_new_key_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that ``build`` emits and nobody declared, and one that is declared and no format shows."""
    document = copy.deepcopy(fields.documents()[2])
    document["diagnoses"][0]["fixes"][0]["cost"] = "two hours"
    document["job"]["ranks"][0]["clock"] = {"skew": 3.5}
    assert fields.undeclared(document) == [
        "diagnoses.[].fixes.[].cost",
        "job.ranks.[].clock",
        "job.ranks.[].clock.skew",
    ]
    monkeypatch.setattr(fields, "documents", lambda: (document,))
    forgotten = {"diagnoses.[].fixes.[].cost", "job.ranks.[].clock.skew"}
    assert fields.unseen(MACHINES) & forgotten == forgotten
    assert fields.unseen(MACHINES | forgotten) & forgotten == set()


def test_a_listed_key_that_is_shown_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    document = fields.documents()[2]
    monkeypatch.setattr(fields, "documents", lambda: (document,))
    assert fields.shown_after_all({"headline", "diagnoses.[].score", "tool.name"}) == {"headline", "diagnoses.[].score"}


def test_a_text_in_one_language_is_noticed() -> None:
    document = copy.deepcopy(fields.documents()[2])
    del document["diagnoses"][0]["fixes"][0]["caution_zh"]
    del document["headline"]
    assert fields.without_twin(document) == ["diagnoses.[].fixes.[].caution", "headline_zh"]


def test_a_key_without_a_description_is_noticed() -> None:
    part = {
        "properties": {
            "a": {"type": "string"},
            "a_zh": {},
            "b": {"description": "x", "items": {"properties": {"c": {}}}},
        }
    }
    assert list(fields.undescribed(part)) == ["a", "b.[].c"]
