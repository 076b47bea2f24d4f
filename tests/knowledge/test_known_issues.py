"""Known issues: which messages have one, what a stated version says, and what is shown of it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from nccl_triage.api import diagnose
from nccl_triage.checks import knowledge as checks
from nccl_triage.engine.pattern import Pattern
from nccl_triage.engine.schema import RuleSet
from nccl_triage.knowledge import answer, known_issues
from nccl_triage.render import render

RULES = Path(__file__).parents[2] / "rules"
LOG = "ImportError: cannot import name 'log' from 'torch.distributed.elastic.agent.server.api' (/opt/lib/api.py)"
TRACE = (
    "{first}\nTraceback (most recent call last):\n"
    '  File "/opt/venv/lib/python3.10/site-packages/deepspeed/elasticity/elastic_agent.py", line 9, in <module>\n'
    "    from torch.distributed.elastic.agent.server.api import log, _get_socket_with_port\n{last}\n"
)
ID = "deepspeed-elastic-log-import"


def ids(text: str, **versions: str) -> list[str]:
    return [issue.id for issue in known_issues.of(text, {name: [version] for name, version in versions.items()})]


def document(folder: Path, text: str) -> dict[str, Any]:
    path = folder / "trainer.log"
    path.write_text(text)
    return diagnose(path).to_dict()


def test_every_issue_passes_its_samples() -> None:
    assert len(known_issues.shipped()) > 90
    assert [problem for issue in known_issues.shipped().values() for problem in checks.known_issue(issue)] == []


def test_a_wrong_issue_is_refused() -> None:
    issue = known_issues.shipped()[ID]
    assert checks.known_issue(issue._replace(match_samples=("All is well.",)))
    assert checks.known_issue(issue._replace(not_samples=()))
    assert checks.known_issue(issue._replace(url="http://example.org"))
    assert checks.known_issue(issue._replace(title={"en": "只有中文", "zh": "只有中文"}))
    assert checks.known_issue(issue._replace(matches=Pattern(r"(a+)+b" + issue.matches.source)))


def test_no_issue_matches_the_samples_of_another_unless_both_are_true() -> None:
    for issue in known_issues.shipped().values():
        for text in issue.match_samples:
            assert issue.id in ids(text)
            assert len(ids(text)) == 1


def test_files_fit_the_schema_and_repairs_are_no_guesses() -> None:
    schema = json.loads((RULES / "schema" / "known_issues.schema.json").read_text("utf-8"))
    for path in sorted((RULES / "known_issues").glob("*.yaml")):
        jsonschema.validate(yaml.safe_load(path.read_text("utf-8")), schema)
    for issue in known_issues.shipped().values():
        assert issue.mended_in or "no release that mends it is known" in issue.says["en"]


def test_a_stated_version_that_is_mended_is_no_match() -> None:
    assert ids(LOG) == [ID]
    assert ids(LOG, deepspeed="0.13.5") == [ID]
    assert ids(LOG, deepspeed="0.14.1") == []
    assert ids(LOG, torch="2.4.0") == [ID]
    said = "TypeError: SFTConfig.__init__() got an unexpected keyword argument 'max_seq_length'"
    assert ids(said, trl="0.19.0") == []
    assert ids(said, trl="0.20.1") == ["trl-max-seq-length"]


def test_one_of_several_stated_versions_is_enough() -> None:
    assert known_issues.of(LOG, {"deepspeed": ["0.14.1", "0.13.5"]})


def test_a_job_is_told_of_its_issue_first(tmp_path: Path) -> None:
    found = document(tmp_path, TRACE.format(first="starting", last=LOG))
    (issue,) = found["known_issues"]
    assert (issue["id"], issue["mended_in"], issue["line"]) == (ID, "0.14.1", 5)
    best = found["diagnoses"][0]
    assert best["cause"] == "framework-version-incompatibility"
    assert best["fixes"][0]["title"].startswith("Install DeepSpeed 0.14.1 or later")
    assert issue["url"] in best["fixes"][0]["references"]
    for kind in ("text", "markdown", "html"):
        shown = str(render(found, kind))
        assert "0.14.1" in shown
        assert issue["url"] in shown


def test_a_job_with_the_mended_version_is_not_told(tmp_path: Path) -> None:
    started = "[2026-03-02 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed info: version={}, git-hash=unknown"
    old = document(tmp_path, TRACE.format(first=started.format("0.13.5"), last=LOG))
    mended = document(tmp_path, TRACE.format(first=started.format("0.15.0"), last=LOG))
    assert old["job"]["software"]["deepspeed"] == "0.13.5"
    assert [issue["id"] for issue in old["known_issues"]] == [ID]
    assert "known_issues" not in mended
    assert "known issue" not in mended["diagnoses"][0]["fixes"][0]["title"]


def test_the_repair_comes_first_only_for_its_own_cause(tmp_path: Path) -> None:
    # The message stands beside a failure of another kind, which the verdict is about.
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free."
    found = document(tmp_path, f"Traceback (most recent call last):\n{text}\n{LOG}\n")
    best = found["diagnoses"][0]
    assert best["cause"] == "gpu-out-of-memory"
    assert [issue["id"] for issue in found["known_issues"]] == [ID]
    assert not any("known issue" in fix["title"] for fix in best["fixes"])


def test_a_healthy_job_is_told_of_none(tmp_path: Path) -> None:
    steps = "".join(f"[rank0]: step {n}/100 loss 2.{n}\n" for n in range(1, 101))
    assert "known_issues" not in document(tmp_path, steps + "Training finished.\n")


def test_at_most_three_are_told(tmp_path: Path) -> None:
    samples = [issue.match_samples[0] for issue in known_issues.shipped().values() if issue.program == "accelerate"]
    lines = "".join(f"Traceback (most recent call last):\n{sample}\n" for sample in samples[:8])
    assert len(document(tmp_path, lines).get("known_issues", [])) <= 3


def test_explain_knows_every_issue(rules: RuleSet) -> None:
    (page,) = answer.entries(ID, rules)
    assert (page["kind"], page["mended_in"]) == ("known_issue", "0.14.1")
    assert page["references"] == [known_issues.shipped()[ID].url]


@pytest.mark.parametrize("issue", known_issues.shipped().values(), ids=lambda issue: issue.id)
def test_sentences_read_well(issue: known_issues.KnownIssue) -> None:
    for text in (issue.says, issue.repair):
        assert "None" not in text["en"] + text["zh"]
    if issue.avoid:
        assert not issue.avoid["en"].endswith(".")
        assert not issue.avoid["zh"].endswith("。")
        assert re.match(r"[a-z]", issue.avoid["en"])
    assert not issue.title["en"].endswith(".")
