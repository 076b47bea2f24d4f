"""The shipped layouts are right, and a layout that is wrong is found, with file and line, by the check of the rules."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nccl_triage.checks.layouts import check_layouts
from nccl_triage.engine import load, path_layouts
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import RuleError
from nccl_triage.ingest.layout_conditions import WHEN
from nccl_triage.ingest.layouts import RAY_HELPER, LayoutReader

GOOD = r"""parts:
  blade: '(?P<host>blade\d{1,4})'
layouts:
  - id: site
    layout: site-file
    meaning: How our launcher names the log of a rank.
    needs: 'blade'
    pattern: '(?:^|/){blade}\.r(?P<rank>\d{1,5})\.joblog$'
    match:
      - path: 'run/blade7.r3.joblog'
        gives: {host: blade7, rank: 3}
    not:
      - 'blade7.joblog'
  - id: site-host
    layout: site-file
    meaning: How our launcher names the log of a host.
    needs: '0-9'
    pattern: '(?:^|/){blade}\.joblog$'
    match:
      - path: 'blade7.joblog'
        gives: {host: blade7}
    not:
      - 'blade.joblog'
  - id: site-number
    layout: site-file
    meaning: How our launcher names the log of a rank on one host.
    pattern: '(?:^|/)(?P<rank>\d{1,5})\.joblog$'
    when: siblings-are-ranks
    match:
      - path: '3.joblog'
        gives: {rank: 3}
        beside: [0.joblog, 1.joblog, 2.joblog, 3.joblog]
    not:
      - '3.joblog'
details:
  - id: site-attempt
    meaning: Our launcher counts attempts.
    pattern: '(?:^|/)try(?P<attempt>\d+)/'
    match:
      - path: 'try2/blade7.joblog'
        gives: {host: blade7, attempt: 2}
    not:
      - 'retry2/blade7.joblog'
"""


def problems(folder: Path, text: str) -> list[str]:
    """Return what loading or the check finds wrong with a user's layouts."""
    path = folder / "layouts" / "site.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    try:
        rules = load.load((folder,))
    except RuleError as error:
        return error.lines("en")
    return [finding.show() for finding in check_layouts(rules)]


def test_the_shipped_layouts_are_right(rules: RuleSet) -> None:
    assert [finding.show() for finding in check_layouts(rules)] == []
    assert len(rules.layouts.rows) > 40
    assert RAY_HELPER in {row.layout for row in rules.layouts.rows.values()}


def test_a_users_layout_is_read(tmp_path: Path) -> None:
    assert problems(tmp_path, GOOD) == []
    info = LayoutReader(load.load((tmp_path,)).layouts).read("try2/BLADE7.r3.joblog.gz")
    assert (info.layout, info.host, info.rank, info.attempt) == ("site-file", "BLADE7", 3, 2)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        # A condition that no code stands behind, or that lacks its group.
        ("when: siblings-are-ranks", "when: siblings", 28, "'siblings' is not one of"),
        ("when: siblings-are-ranks", "when: speaks-for-itself", 27, "needs the group 'before'"),
        # A group that sets no field, or a wrong one.
        ("(?P<rank>\\d{1,5})\\.joblog$'\n    when", "(?P<rang>\\d{1,5})\\.joblog$'\n    when", 27, "the group 'rang' sets no"),
        ("r(?P<rank>\\d{1,5})", "r(?P<rank>\\w{1,5})", 8, "can hold something else than digits"),
        ("r(?P<rank>\\d{1,5})", "r(?P<pid>\\d{1,5})", 4, "rank of its sample is not set"),
        ("r(?P<rank>\\d{1,5})", "r(?P<rank>\\d{1,5})(?:-(?P<pid>\\d+))?", 4, "the group 'pid' sets nothing in any sample"),
        # An order in which an earlier layout takes the sample of a later one.
        ("{blade}\\.r(?P<rank>\\d{1,5})\\.", "{blade}(?:\\.r(?P<rank>\\d{1,5}))?\\.", 14, "its sample is taken by site"),
        ("needs: '0-9'", "needs: 'rank'", 14, "does not match its sample"),
        # Samples.
        ("      - 'blade.joblog'\n", "      []\n", 14, "has no sample under 'not'"),
        ("- 'blade.joblog'", "- 'blade2.joblog'", 14, "matches a sample of 'not'"),
        ("    not:\n      - 'blade.joblog'\n", "", 14, "the key 'not' is missing"),
        ("gives: {host: blade7}\n", "gives: {host: blade8}\n", 14, "host of its sample is blade7"),
        ("gives: {host: blade7}\n", "gives: {hosts: blade7}\n", 21, "unknown key 'hosts'"),
        # Patterns.
        ("{blade}\\.joblog$'\n    match", "{blade}(?:\\w+-?)*\\.joblog$'\n    match", 14, "this can take exponential time"),
        ("'(?:^|/)try(?P<attempt>\\d+)/'", "'(?P<attempt>\\d*)'", 38, "the pattern matches an empty text"),
        ("'(?:^|/)try(?P<attempt>\\d+)/'", "'(?:^|/)try(?P<attempt>\\d+/'", 38, "not a valid regular expression"),
        ("{blade}\\.joblog$'\n    match", "{blades}\\.joblog$'\n    match", 18, "there is no part 'blades'"),
        ("id: site-host", "id: host-file", 14, "the layout 'host-file' already exists"),
        ("needs: 'blade'", "needs: 'Blade'", 7, "'needs' is in lower case"),
        ("    layout: site-file\n    meaning: How our launcher names the log of a host.", "    meaning: X.", 14, "'layout' is missing"),
    ],
)  # fmt: skip
def test_a_wrong_layout_is_found(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    assert old in GOOD
    found = problems(tmp_path, GOOD.replace(old, new))
    place = f"{tmp_path}/layouts/site.yaml:{line}"
    assert any(message in text for text in found), found
    assert any(place in text for text in found), found


def test_a_users_layout_that_takes_a_shipped_one_is_found(tmp_path: Path) -> None:
    greedy = GOOD.replace("'(?:^|/){blade}\\.joblog$'", "'(?:^|/)(?:{blade}\\.joblog|slurm-\\d+\\.out)$'")
    assert any("slurm-job: its sample is taken by site-host" in text for text in problems(tmp_path, greedy))


def test_every_condition_is_code_and_is_used(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(WHEN) == set(path_layouts.CONDITIONS)
    rows = {name: row for name, row in rules.layouts.rows.items() if row.when != "host-has-number"}
    fewer = replace(rules, layouts=replace(rules.layouts, rows=rows))
    assert "the condition is not used" in [finding.message for finding in check_layouts(fewer)]
    monkeypatch.setitem(WHEN, "always", WHEN["host-has-number"])
    assert [finding.message for finding in check_layouts(rules)] == ["the condition is not listed"]


def test_the_readme_names_every_condition() -> None:
    text = (Path(__file__).parents[2] / "rules" / "README.md").read_text(encoding="utf-8")
    assert [n for n, meaning in path_layouts.CONDITIONS.items() if f"- `{n}`: {meaning}\n" not in text] == []


def test_the_schema_for_editors_has_the_same_words() -> None:
    path = Path(__file__).parents[2] / "rules" / "schema" / "layouts.schema.json"
    for part in ("layouts", "details"):
        row = json.loads(path.read_text(encoding="utf-8"))["properties"][part]["items"]["properties"]
        assert row["when"]["enum"] == list(path_layouts.CONDITIONS)
        gives = row["match"]["items"]["properties"]["gives"]
        assert gives["propertyNames"]["enum"] == list(path_layouts.FIELDS)
