"""Threads for a report document: nearly those of the diagnosis, and new ones where experiments name another cause."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nccl_triage import diagnose
from nccl_triage.engine.schema import RuleSet
from nccl_triage.similar import of_document, search, threads
from nccl_triage.similar.threads import PublicThread
from tests.cli.processes import ROOT, run

LOGS = ROOT / "corpus" / "written" / "logs"
LOG = LOGS / "S004-openrlhf-batch-size.log"


@pytest.mark.parametrize("name", ["S004-openrlhf-batch-size.log", "S001-openrlhf-broadcast-two-networks.log"])
def test_a_document_finds_what_its_diagnosis_found_first(name: str, rules: RuleSet) -> None:
    made = diagnose(LOGS / name, rules=rules).to_dict()
    found = of_document.similar(made, rules)
    assert found[0]["url"] in [one["url"] for one in made["similar"]]
    assert {one["cause"] for one in found} == {made["diagnoses"][0]["cause"]}
    assert of_document.similar({**made, "verdict": "healthy"}, rules) == []


def test_versions_and_the_first_fault_count_as_they_do_in_a_diagnosis(rules: RuleSet) -> None:
    found = diagnose(LOG, rules=rules)
    ours, theirs = set(of_document._features(found.to_dict())), search.features_of(found.case)
    kinds = ("r:", "v:")
    assert {name for name in ours if name.startswith(kinds)} == {name for name in theirs if name.startswith(kinds)}
    assert {name for name in ours if name.startswith("s:")} <= theirs


def test_threads_of_a_cause_that_no_longer_leads_give_way(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    before = diagnose(LOG, rules=rules).to_dict()
    thread = PublicThread("https://example.org/1", "os-limit", "", "")
    index = threads.indexed([(thread, set(of_document._features(before))), *_others()])
    monkeypatch.setattr(of_document, "shipped", lambda: index)
    after = json.loads(json.dumps(before))
    assert of_document.renewed(before, after, rules) is after
    after["diagnoses"][0]["cause"] = "os-limit"
    assert [one["url"] for one in of_document.renewed(before, after, rules)["similar"]] == [thread.url]
    after["diagnoses"][0]["cause"] = "straggler"
    assert "similar" not in of_document.renewed(before, after, rules)
    bare = {key: value for key, value in before.items() if key != "similar"}
    assert of_document.renewed(bare, after, rules) is after, "what was not looked up is not looked up now"


def _others() -> list[tuple[PublicThread, set[str]]]:
    return [(PublicThread(f"https://example.org/{n}", "port-in-use", "", ""), {f"s:other{n}"}) for n in range(2, 40)]


def test_a_saved_report_is_asked_for_its_threads(tmp_path: Path) -> None:
    made = json.loads(run(str(LOG), "--no-history", "--format", "json").stdout)
    saved, bare = tmp_path / "report.json", tmp_path / "bare.json"
    saved.write_text(json.dumps(made))
    bare.write_text(json.dumps({key: value for key, value in made.items() if key != "similar"}))
    told = json.loads(run("similar", str(saved), "--format", "json").stdout)
    assert told["similar"] == made["similar"]
    assert json.loads(run("similar", str(bare), "--format", "json").stdout)["similar"][0]["url"].startswith("https://")
    (tmp_path / "lines.json").write_text('{"message": "CUDA out of memory"}\n')
    assert run("similar", str(tmp_path / "lines.json")).returncode == 0, "a log in JSON lines is a log"
    bare.write_text(json.dumps({**made, "schema_version": 99}))
    refused = run("similar", str(bare))
    assert refused.returncode == 2 and b"version 99" in refused.stderr
