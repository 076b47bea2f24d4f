"""The shipped corpus: its index is sound, and what the tool says of it does not get worse."""

from __future__ import annotations

import fnmatch
import json
from collections import Counter
from pathlib import Path

import jsonschema
import pytest

from nccl_triage import diagnose
from nccl_triage.document.restart import DECIDING_STEPS
from nccl_triage.engine.schema import RuleSet
from nccl_triage.evaluation import advice, cases, run, suite
from nccl_triage.evaluation.score import measure
from nccl_triage.knowledge import known_issues
from nccl_triage.knowledge.known_issues import HOW_KNOWN
from nccl_triage.render import render

CORPUS = Path(__file__).parents[1] / "corpus"
SETS = ("recorded", "written")
PARTS = 4


def records(name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (CORPUS / name / "cases.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("name", SETS)
def test_the_index_names_existing_logs_and_known_causes(name: str, rules: RuleSet) -> None:
    known = {*rules.causes, "healthy", "unknown"}
    found = cases.read(CORPUS / name)
    assert len({case.id for case in found}) == len(found)
    for case in found:
        assert case.log.is_file(), case.id
        assert set(case.acceptable) <= known, case.id
        assert case.source == name
        if case.evidence_line:
            assert case.evidence_line <= len(case.log.read_bytes().splitlines()), case.id


@pytest.mark.parametrize("name", SETS)
def test_every_log_is_in_the_index(name: str) -> None:
    assert set((CORPUS / name / "logs").iterdir()) == {case.log for case in cases.read(CORPUS / name)}


def test_recordings_tell_how_they_were_made_and_are_many() -> None:
    found = records("recorded")
    for entry in found:
        for key in ("injected", "commands", "versions", "exit_codes", "family", "world_size", "recorded"):
            assert entry.get(key) is not None, (entry["id"], key)
        if "folder" in entry:
            assert any((CORPUS / "recorded" / str(entry["folder"])).iterdir())
    causes = Counter(entry["cause"] for entry in found)
    assert causes["healthy"] >= 25
    assert len(found) - causes["healthy"] >= 120
    assert len(causes) - 1 >= 25
    assert {entry["world_size"] for entry in found} >= {2, 3, 4, 6, 8}


def test_re_enactments_name_their_thread() -> None:
    for entry in records("written"):
        assert str(entry.get("url") or "").startswith("http") or entry["basis"] == "seed", entry["id"]


def test_judged_advice_names_fixes_that_exist(rules: RuleSet) -> None:
    written = {f"written/{entry['id']}" for entry in records("written") if "helped" in entry}
    wild = [json.loads(line) for line in (CORPUS / "wild" / "manifest.jsonl").read_text("utf-8").splitlines()]
    wanted = written | {f"wild/{entry['id']}" for entry in wild if entry["fix_that_helped"]}
    judged = advice.read(CORPUS / "advice.jsonl")
    assert {name for name in judged if not name.startswith("whole/")} == wanted
    fixes = {f"{cause.id}/{fix.name}" for cause in rules.causes.values() for fix in cause.fixes}
    fixes |= {f"known-issue/{name}" for name in known_issues.shipped()}
    globs = {glob for one in judged.values() for glob in (*one.helps, *one.harms)}
    assert not [g for g in globs if not g.startswith(("stated/", "known-issue/")) and not fnmatch.filter(fixes, g)]
    assert {decision for one in judged.values() for decision in one.restart} <= {*DECIDING_STEPS.values(), "fix_first"}


def test_what_helped_in_a_thread_can_be_looked_up() -> None:
    told = [entry["helped"] for entry in records("written") if "helped" in entry]
    assert len(told) >= 15
    for helped in told:
        assert set(helped) == {"what", "how_known", "url"}
        assert helped["how_known"] in HOW_KNOWN
        assert helped["url"].startswith("https://")


def test_nothing_of_the_recording_machine_is_left() -> None:
    forbidden = (b"/root/.pyenv", b"/home/runner", b"nccl-triage-corpus-")
    for path in (CORPUS / "recorded").rglob("*.log"):
        data = path.read_bytes()
        assert not any(word in data for word in forbidden), path


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", SETS)
def test_accuracy_healthy_logs_and_documents(name: str, part: int, rules: RuleSet) -> None:
    """One pass over a part: the scores do not fall, and every diagnosis becomes a valid document in every format."""
    schema = json.loads((CORPUS.parent / "reports" / "schema" / "report.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    chosen = cases.read(CORPUS / name)[part::PARTS]
    found, baselines = run.run(chosen, rules)
    scores = measure(found)
    assert scores.top1 is not None
    # The vote reads words of the lines that tell most; it has not learnt these very logs by their signatures.
    assert scores.top1 >= 0.93
    assert scores.healthy is not None and scores.healthy >= 0.95
    for baseline in baselines.values():
        assert scores.top1 > (measure(baseline).top1 or 0)
    for case in chosen[::8]:
        document = diagnose(case.log, rules=rules).to_dict()
        validator.validate(json.loads(render(document, "json")))
        for kind in ("text", "markdown", "html"):
            assert render(document, kind)


def test_a_folder_of_rank_files_is_diagnosed_like_its_interleaved_log(rules: RuleSet) -> None:
    entries = [
        e for e in records("recorded") if "folder" in e and e["determinable"] == "yes" and e["cause"] != "healthy"
    ]
    right = 0
    chosen = entries[::6]
    for entry in chosen:
        said = diagnose(CORPUS / "recorded" / str(entry["folder"]), rules=rules)
        accepted = {entry["cause"], *entry["also_acceptable"]}  # type: ignore[misc]
        right += said.cause in accepted or (said.verdict == "unknown" and "unknown" in accepted)
    # Files per rank lack the launcher's own lines (signals, exit codes), so fewer causes can be seen.
    assert right >= 0.6 * len(chosen)


def test_a_wrong_label_is_reported_by_the_rules_test(rules: RuleSet, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text(
        "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    for cause, severity in (("port-in-use", "warning"), ("healthy", "error")):
        (tmp_path / "cases.jsonl").write_text(json.dumps({"id": "a", "log": "logs/a.log", "cause": cause}))
        assert [f.severity for f in suite.check_corpus(rules, tmp_path)] == [severity]
