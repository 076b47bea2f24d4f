"""Which fields the lines of a signature have, for the checks of texts and filters."""

from __future__ import annotations

from nccl_triage.checks import samples
from nccl_triage.checks.fields import of_all, of_signature
from nccl_triage.diagnosis.conditions import Conditions
from nccl_triage.engine.match import expand
from nccl_triage.engine.regex_analysis import groups
from nccl_triage.engine.schema import CODE_FIELDS, PLACEHOLDER, Evidence, RuleSet, text_parts
from nccl_triage.producers import produced_signatures
from tests.scan_helpers import diagnose_text


def test_groups_that_every_match_has() -> None:
    possible, certain = groups(
        r"(?P<a>x)(?:(?P<b>y))?(?:(?P<c>1)|(?P<c2>2))(?:(?P<d>3)|4)(?P<e>z)+(?=(?P<f>q))(?P<g>w)*(?P<h_old>v)"
    )
    assert possible == {"a", "b", "c", "c2", "d", "e", "f", "g", "h", "h_old"}
    assert certain == {"a", "c", "e", "f", "h", "h_old"}


def test_a_number_of_a_table_gives_the_fields_that_are_declared(rules: RuleSet) -> None:
    text = "NVRM: Xid (PCI:0000:3b:00): 79, pid=77, GPU has fallen off the bus.\n"
    (event,) = diagnose_text(text, rules).case.of("nvidia-driver.xid_any")
    known = of_signature(rules.signatures[event.signature])
    assert event.fields.keys() - groups(rules.signatures[event.signature].pattern.source)[0] == set(CODE_FIELDS)
    assert known.certain >= set(CODE_FIELDS)
    assert event.fields.keys() <= known.possible


def test_producers_declare_their_fields(rules: RuleSet) -> None:
    fields = of_all(rules, produced_signatures())
    assert "good" in fields["baseline.version"].certain
    assert "good" in fields["baseline.variable"].possible - fields["baseline.variable"].certain


def test_every_sample_has_the_fields_that_rows_tell(rules: RuleSet) -> None:
    """What the check derives from patterns and filters is true of the samples."""
    rows: dict[str, list[tuple[str, Evidence]]] = {}
    for cause in rules.causes.values():
        for item in (*cause.evidence, *cause.against):
            for name in {one for pattern in item.signatures for one in expand(pattern, rules.kinds)}:
                rows.setdefault(name, []).append((cause.id, item))
    told, missing = 0, []
    for name, items in rows.items():
        for sample in rules.signatures[name].match_samples:
            case = samples.read(sample, rules)
            conditions = Conditions(case)
            for cause_id, item in items:
                for event in case.of(name):
                    if item.where is not None and not conditions.selects(item.where, event):
                        continue
                    for part, optional in text_parts(item.says["en"]):
                        fields = {match["name"] for match in PLACEHOLDER.finditer(part) if match["kind"] == "f:"}
                        told += len(fields)
                        if not optional and not fields - {"text"} <= event.fields.keys():
                            missing.append((cause_id, item.id, name, sorted(fields - event.fields.keys())))
    assert told > 250
    assert missing == []
