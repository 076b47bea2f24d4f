"""The shipped prefixes are right, and a prefix that is wrong is found, with file and line, by the check of the rules."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nccl_triage.checks.prefixes import check_prefixes
from nccl_triage.engine import line_prefixes, load
from nccl_triage.engine.read_prefixes import OPTIONAL as _KEYS
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import RuleError
from nccl_triage.parsers.believed import BELIEVED
from nccl_triage.parsers.context_fields import SETTERS
from nccl_triage.parsers.line_readers import LINE_READERS
from nccl_triage.parsers.wrappers import PrefixReader

GOOD = r"""parts:
  size: '\d{1,7}'
prefixes:
  - id: site
    meaning: What our launcher prints.
    starts: '@'
    pattern: '@(?P<rank>\d{1,6})/(?P<world>{size}) (?P<when>\d{4} \d\d:\d\d:\d\d) '
    sets: {rank: rank, world: world-size, when: time-without-year}
    gives: {program: ours}
    match:
      - line: '@3/8 0603 14:14:31 step 1'
        text: 'step 1'
        context: {rank: 3, world_size: 8, time: '06-03 14:14:31', program: ours}
    not:
      - '@3/8 step 1'
  - id: site-rank
    meaning: What our launcher printed last year.
    starts: '@'
    pattern: '@(?P<rank>\d{1,6}) '
    sets: {rank: rank}
    match:
      - line: '@3 step 1'
        text: 'step 1'
        context: {rank: 3}
    not:
      - '@x step 1'
  - id: site-column
    meaning: Our launcher puts the task in a column of its own.
    pattern: '(?P<task>\d{1,6}) = '
    believed: several-speakers
    speaker: task
    sets: {task: group-rank}
    match:
      - lines: ['0 = step 1', '1 = step 1', '0 = step 2', '1 = step 2']
        text: 'step 2'
        context: {group_rank: 1}
    not:
      - '0 = nothing'
      - lines: ['0 = step 1', 'one', 'two', 'three']
"""


def problems(folder: Path, text: str) -> list[str]:
    """Return what loading or the check finds wrong with a user's prefixes."""
    path = folder / "prefixes" / "site.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    try:
        rules = load.load((folder,))
    except RuleError as error:
        return error.lines("en")
    return [finding.show() for finding in check_prefixes(rules)]


def test_the_shipped_prefixes_are_right(rules: RuleSet) -> None:
    assert [finding.show() for finding in check_prefixes(rules)] == []
    assert len(rules.prefixes.rows) > 60


def test_a_users_prefix_is_read(tmp_path: Path) -> None:
    assert problems(tmp_path, GOOD) == []
    reader = PrefixReader(load.load((tmp_path,)).prefixes)
    peeled = reader.peel("[rank5]: @3/8 0603 14:14:31 step 1")
    assert (peeled.text, peeled.context.rank, peeled.context.world_size) == ("step 1", 3, 8)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        # A word that no code stands behind.
        ("world: world-size", "world: world-sizes", 8, "'world-sizes' is not one of"),
        ("believed: several-speakers", "believed: sometimes", 30, "'sometimes' is not one of"),
        ("pattern: '@(?P<rank>\\d{1,6}) '\n    sets: {rank: rank}", "reader: xml", 19, "'xml' is not one of"),
        # A group that sets no field, or a wrong one.
        ("{rank: rank, world: world-size, ", "{rank: rank, ", 7, "the group 'world' sets no field"),
        ("sets: {rank: rank, world", "sets: {ranks: rank, world", 8, "'ranks' is not a named group"),
        ("size: '\\d{1,7}'", "size: '\\w{1,7}'", 8, "the group 'world' can hold something else than digits"),
        ("size: '\\d{1,7}'", "size: '\\d+'", 8, "the group 'world' can hold more than 18 digits"),
        ("when: time-without-year", "when: time", 4, "time of its sample is not set"),
        ("when: time-without-year", "when: time", 4, "the group 'when' sets 'time' in no sample"),
        ("world: world-size", "world: pid", 4, "world_size of its sample is not set"),
        # An order in which an earlier prefix takes the sample of a later one.
        ("/(?P<world>{size}) (?P<when>\\d{4} \\d\\d:\\d\\d:\\d\\d) '", "(?P<world>)(?P<when>) ?'", 16, "is taken by site"),
        ("'@(?P<rank>\\d{1,6}) '", "'(?P<rank>\\d{1,6}): '\n    behind: nobody", 16, "the unknown prefix 'nobody'"),
        # Samples.
        ("      - '@x step 1'\n", "      []\n", 16, "has no sample under 'not'"),
        ("    not:\n      - '@x step 1'\n", "", 16, "the key 'not' is missing"),
        ("- '@x step 1'", "- '@4 step 1'", 16, "does not keep its text: site-rank takes a part of it"),
        ("text: 'step 1'\n        context: {rank: 3}", "text: 'step'\n        context: {rank: 3}", 16, "is 'step 1'"),
        ("context: {rank: 3}", "context: {rank: 3, pid: 4}", 16, "pid of its sample is not set"),
        ("context: {rank: 3}", "context: {ranks: 3}", 24, "'ranks' is not one of"),
        ("      - lines: ['0 = step 1', 'one', 'two', 'three']\n", "", 27, "needs 'lines' under 'not'"),
        ("'one', 'two', 'three'", "'1 = x', '2 = x'", 27, "is believed in a source of 'not'"),
        ("speaker: task", "first: true", 27, "needs 'speaker'"),
        # Patterns.
        ("'@(?P<rank>\\d{1,6}) '", "'@(?P<rank>\\d{1,6})(?:\\w+ ?)* '", 16, "this can take exponential time"),
        ("'@(?P<rank>\\d{1,6}) '", "'@?(?P<rank>\\d{0,6})'", 19, "the pattern matches an empty text"),
        ("'@(?P<rank>\\d{1,6}) '", "'@(?P<rank>\\d{1,6} '", 19, "not a valid regular expression"),
        ("{size}", "{sizes}", 7, "there is no part 'sizes'"),
        ("id: site-rank", "id: torch-rank", 16, "the prefix 'torch-rank' already exists"),
        ("starts: '@'", "start: '@'", 6, "unknown key 'start'"),
    ],
)  # fmt: skip
def test_a_wrong_prefix_is_found(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    assert old in GOOD
    found = problems(tmp_path, GOOD.replace(old, new))
    place = f"{tmp_path}/prefixes/site.yaml:{line}"
    assert any(message in text for text in found), found
    assert any(place in text for text in found), found


def test_a_users_prefix_that_takes_a_shipped_one_is_found(tmp_path: Path) -> None:
    greedy = GOOD.replace("'@(?P<rank>\\d{1,6}) '", "'[@\\[]r?a?n?k?(?P<rank>\\d{1,6})\\]?:? '").replace("'@'", "'@['")
    assert any("torch-rank: its sample is taken by site-rank" in text for text in problems(tmp_path, greedy))


def test_every_word_is_code_and_is_used(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(SETTERS) == set(line_prefixes.FIELDS)
    assert set(BELIEVED) == set(line_prefixes.CONDITIONS)
    assert set(LINE_READERS) == set(line_prefixes.READERS)
    rows = {name: row for name, row in rules.prefixes.rows.items() if name != "sglang"}
    fewer = replace(rules, prefixes=replace(rules.prefixes, rows=rows))
    assert [finding.message for finding in check_prefixes(fewer)] == ["no prefix uses the field"]
    monkeypatch.setitem(SETTERS, "colour", SETTERS["level"])
    assert [finding.message for finding in check_prefixes(rules)] == ["the field is not listed"]


def test_a_users_pattern_that_takes_too_long_does_not_stop_a_scan(tmp_path: Path) -> None:
    slow = GOOD.replace("'@(?P<rank>\\d{1,6}) '", "'@(?P<rank>\\d{1,6})(?:a|a|aa)*(?:a|a|aa)*(?:a|a|aa)* '")
    path = tmp_path / "prefixes" / "site.yaml"
    path.parent.mkdir()
    path.write_text(slow, encoding="utf-8")
    reader = PrefixReader(load.load((tmp_path,)).prefixes)
    line = "@3" + "a" * 3000 + "!"
    assert reader.peel(line).text == line


def test_the_readme_names_every_word() -> None:
    text = (Path(__file__).parents[2] / "rules" / "README.md").read_text(encoding="utf-8")
    words = {**line_prefixes.FIELDS, **line_prefixes.CONDITIONS, **line_prefixes.COPIES}
    assert [name for name, meaning in words.items() if f"- `{name}`: {meaning}\n" not in text] == []


def test_the_schema_for_editors_has_the_same_words() -> None:
    path = Path(__file__).parents[2] / "rules" / "schema" / "prefixes.schema.json"
    row = json.loads(path.read_text(encoding="utf-8"))["properties"]["prefixes"]["items"]["properties"]
    assert set(row) == set(_KEYS) | {"id", "meaning", "match", "not"}
    assert row["sets"]["additionalProperties"]["enum"] == list(line_prefixes.FIELDS)
    assert row["gives"]["propertyNames"]["enum"] == list(line_prefixes.FIELDS)
    assert row["believed"]["enum"] == row["inside"]["enum"] == list(line_prefixes.CONDITIONS)
    assert row["copied"]["enum"] == list(line_prefixes.COPIES)
    assert row["reader"]["enum"] == list(line_prefixes.READERS)
