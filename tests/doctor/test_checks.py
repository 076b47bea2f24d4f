"""The rules of doctor: what a file may hold, with file and line of what it may not, and that the shipped ones are whole."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from nccl_triage.doctor import checks, wording
from nccl_triage.engine import nodes
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import RuleError

RULES = Path(__file__).parents[2] / "rules"
CHECK = """checks:
  - id: hot
    of: gpu
    known: [temperature]
    limits: {hot: 85}
    failed: f.temperature > f.hot
    says: {en: "{temperature} degrees", zh: "{temperature} 度"}
    do: {en: "cool it", zh: "降温"}
"""


def read(text: str) -> tuple[dict[str, checks.HostCheck], dict[str, checks.DifferenceRule]]:
    return checks.read([nodes.parse(text, "x.yaml")])


def test_a_check_as_it_is_written() -> None:
    check = read(CHECK)[0]["hot"]
    assert (check.table, check.known, check.limits, check.where) == ("gpu", ("temperature",), {"hot": 85.0}, "x.yaml:2")


@pytest.mark.parametrize(
    ("old", "new", "where", "says"),
    [
        ("of: gpu", "of: gpus2", "x.yaml:3", "gpus2"),
        ("failed: f.temperature > f.hot", "colour: red", "x.yaml:6", "colour"),
        ("    failed: f.temperature > f.hot\n", "", "x.yaml:2", "a check needs"),
        ("f.temperature > f.hot", "open('x')", "x.yaml:6", "open"),
        ("{hot: 85}", "{hot: much}", "x.yaml:5", "much"),
        ('zh: "降温"', 'de: "x"', "x.yaml:8", "de"),
        ("checks:", "cheks:", "x.yaml:2", "cheks"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(old: str, new: str, where: str, says: str) -> None:
    with pytest.raises(RuleError) as caught:
        read(CHECK.replace(old, new))
    told = " ".join(caught.value.lines("en"))
    assert where in told
    assert says in told


def test_an_id_stands_once() -> None:
    with pytest.raises(RuleError, match="twice"):
        read(CHECK + CHECK.removeprefix("checks:\n"))


@pytest.mark.parametrize("path", sorted((RULES / "doctor").glob("*.yaml")), ids=lambda path: path.name)
def test_shipped_files_fit_the_schema_for_editors(path: Path) -> None:
    schema = json.loads((RULES / "schema" / "doctor.schema.json").read_text("utf-8"))
    jsonschema.validate(yaml.load(path.read_text("utf-8"), Loader=yaml.BaseLoader), schema)


def test_shipped_rules_name_known_causes_in_both_languages(rules: RuleSet) -> None:
    found, differences = checks.shipped()
    entries = [*found.values(), *differences.values()]
    assert {cause for entry in entries for cause in entry.causes} <= set(rules.causes)
    texts = [text for check in found.values() for text in (check.says, check.do, check.fine) if text is not None]
    texts += [text for one in differences.values() for text in (one.title, one.means)]
    for text in texts:
        assert wording.names({"en": text["en"]}) == wording.names({"en": text["zh"]}), text
    assert len(found) > 50


def test_evidence_of_causes_names_checks_that_exist(rules: RuleSet) -> None:
    found = set(checks.shipped()[0])
    named = set()
    for cause in rules.causes.values():
        for item in (*cause.evidence, *cause.against):
            if "host.check" in item.signatures and item.where is not None:
                words = {part.strip("'\"[],") for part in item.where.source.split()}
                named |= {word for word in words if "-" in word or word in found}
    assert named
    assert named <= found | {"failed", "warning", "note"}
