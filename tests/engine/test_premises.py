"""Premises of messages, and texts that look like evidence and are none: no strong row holds for equal or harmless fields."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nccl_triage.checks import signatures
from nccl_triage.checks.harmless import check_harmless
from nccl_triage.engine import load, match
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import RuleError
from tests.scan_helpers import scan_text

RULE = """program: site
signatures:
  - id: site.sizes_differ
    kind: configuration
    role: root
    pattern: 'shards of layer (?P<layer>\\d+): size (?P<size>\\d+) against (?P<size2>\\d+)'
    premise: f.size != f.size2
    meaning: Two sizes differ.
    match: ['shards of layer 3: size 4 against 8']
    not: ['shards of layer 3: size 8 against 8']
"""


def _load(tmp_path: Path, text: str = RULE) -> RuleSet:
    folder = tmp_path / "rules" / "signatures" / "site"
    folder.mkdir(parents=True)
    (folder / "site.yaml").write_text(text)
    return load.load((tmp_path / "rules",), builtin=False)


def test_a_line_that_breaks_the_premise_is_not_the_message(tmp_path: Path) -> None:
    signature = _load(tmp_path).signatures["site.sizes_differ"]
    assert match.search(signature, "shards of layer 3: size 4 against 8") == {"layer": "3", "size": "4", "size2": "8"}
    assert match.search(signature, "shards of layer 3: size 8 against 8") is None


def test_numbers_that_a_premise_compares_are_looked_at_in_every_line(tmp_path: Path) -> None:
    """Lines that differ in digits only are counted by the dozen: not those of which some are the message."""
    rules = _load(tmp_path)
    equal = [f"shards of layer 3: size {100 + number} against {100 + number}" for number in range(400)]
    found = scan_text("\n".join([*equal, "shards of layer 3: size 500 against 501", *equal]), rules)
    assert [event.line for event in found.events("site.sizes_differ")] == [401]
    unequal = [f"shards of layer 3: size {100 + number} against {600 + number}" for number in range(300)]
    mixed = [line for pair in zip(equal, unequal, strict=False) for line in pair]
    assert scan_text("\n".join(mixed), rules).count("site.sizes_differ") == 300


def test_a_premise_needs_a_sample_that_it_refuses(tmp_path: Path) -> None:
    rules = _load(tmp_path)
    assert signatures.check_samples(rules) == []
    known = rules.signatures["site.sizes_differ"]
    bare = replace(known, not_samples=("layer 3 is well",))
    (finding,) = signatures.check_samples(replace(rules, signatures={known.id: bare}))
    assert "its premise refuses" in finding.message


@pytest.mark.parametrize(
    ("premise", "message"),
    [
        ("f.size != f.sise", "no named group"),
        ("has('step')", "unknown function"),
        ("f.size !=", "cannot read the condition"),
    ],
)
def test_a_wrong_premise_is_refused(tmp_path: Path, premise: str, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        _load(tmp_path, RULE.replace("f.size != f.size2", premise))
    assert message in str(caught.value)
    assert str(caught.value.where).endswith("site.yaml:7")


def test_no_harmless_text_fires_its_row(rules: RuleSet) -> None:
    assert [finding.show() for finding in check_harmless(rules)] == []
