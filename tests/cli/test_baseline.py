"""``--baseline``: what the reader sees of a comparison in every format, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nccl_triage import diagnose
from nccl_triage.cli import cli
from nccl_triage.errors import TriageError
from tests.document import fields

LOGS = Path(__file__).parents[2] / "corpus" / "recorded" / "logs"
GOOD, BAD = LOGS / "healthy_two_hosts_w4.log", LOGS / "net_drop_mid_w4.log"


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["diagnose", *map(str, words)])


@pytest.fixture(scope="module")
def document() -> dict[str, object]:
    found: dict[str, object] = json.loads(run(BAD, "--baseline", GOOD, "--format", "json").stdout)
    return found


def test_the_document_follows_its_schema(document: dict[str, object]) -> None:
    fields.check(document)
    block = document["baseline"]
    assert isinstance(block, dict)
    assert (block["good"], block["state"], block["verdict"]) == ([{"path": str(GOOD)}], "compared", "healthy")
    assert block["divergence"]["line"] == 39
    assert [entry["path"] for entry in document["inputs"]] == [str(BAD)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["text", "markdown", "html"])
def test_every_format_for_people_shows_it_and_render_shows_the_same(
    kind: str, document: dict[str, object], tmp_path: Path
) -> None:
    shown = run(BAD, "--baseline", GOOD, "--format", kind, "--verify", "never", "--model", "none").output
    assert str(GOOD) in shown
    assert "Application timeout caused pair closure" in shown
    assert str(GOOD) not in run(BAD, "--format", kind).output
    saved = tmp_path / "report.json"
    saved.write_text(json.dumps(document), encoding="utf-8")
    later = CliRunner().invoke(cli, ["render", str(saved), "--format", kind, "--lang", "zh"]).output
    assert "对照的正常运行" in later


def test_a_folder_and_several_logs_are_one_good_run(tmp_path: Path) -> None:
    lines = GOOD.read_text(encoding="utf-8").splitlines(keepends=True)
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.log").write_text("".join(lines[rank::2]), encoding="utf-8")
    both = diagnose(BAD, baseline=[tmp_path / "rank0.log", tmp_path / "rank1.log"]).to_dict()["baseline"]
    folder = diagnose(BAD, baseline=tmp_path).to_dict()["baseline"]
    assert both == folder
    assert (both["logs"], both["state"]) == (2, "compared")


def test_pseudonyms_reach_the_good_run_too() -> None:
    found = json.loads(run(BAD, "--baseline", GOOD, "--format", "json", "--redact").stdout)["baseline"]
    assert found["divergence"]["good_at"]["path"] == found["good"][0]["path"] != str(GOOD)
    assert "corpus/recorded" not in json.dumps(found)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--baseline", "/nowhere/good.log"), "/nowhere/good.log"),
        (("--baseline", "-"), "- cannot be the good run"),
        (("--baseline", str(GOOD), "--follow"), "--baseline cannot be combined with --follow"),
    ],
)
def test_what_is_refused(words: tuple[str, ...], says: str) -> None:
    error = run(BAD, *words).exception
    assert isinstance(error, TriageError)
    assert (error.exit_code, bool(error.remedy)) == (2, True)
    assert says in f"{error} {error.cause}"
