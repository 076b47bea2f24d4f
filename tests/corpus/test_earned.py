"""Knowledge is earned: how much of it there may be, and how incidents are counted for it."""

from __future__ import annotations

from pathlib import Path

from corpus.gate import earned
from nccl_triage import diagnose
from nccl_triage.diagnosis.culprit_base import METHODS
from nccl_triage.engine.schema import RuleSet

CAUSES = Path(__file__).parents[2] / "rules" / "causes"
#: Facts that read documents other than logs: dumps of flight recorders and stacks, reports of NCCL's RAS, host checks.
OF_DOCUMENTS = ("recorder.", "stacks.", "ras.", "hosts.")
OOM = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def test_rows_about_logs_do_not_grow_again(rules: RuleSet) -> None:
    rows = [row for cause in rules.causes.values() for row in (*cause.evidence, *cause.against)]
    about_documents = [
        row
        for row in rows
        if "producers" in row.where_defined
        or (row.when is not None and any(name.startswith(OF_DOCUMENTS) for name in row.when.literals("fact")))
    ]
    assert len(rows) - len(about_documents) <= 551
    assert len(rows) <= 660


def test_facts_methods_and_cause_files_do_not_grow_again(rules: RuleSet) -> None:
    known = earned.known(rules)
    assert len([name for name in known["facts"] if not name.startswith(OF_DOCUMENTS)]) <= 125
    assert len([name for name in METHODS if not name.startswith(("recorded-", "ras-", "stands-"))]) <= 51
    assert sum(len(path.read_text("utf-8").splitlines()) for path in CAUSES.rglob("*.yaml")) <= 5552


def test_what_held_in_a_case(tmp_path: Path, rules: RuleSet) -> None:
    log = tmp_path / "log"
    log.write_text(OOM, "utf-8")
    found = diagnose(log, rules=rules)
    shown = earned.shown(found.case, [candidate.weighed for candidate in found.candidates])
    assert "gpu-out-of-memory/oom-exception" in shown["rows"]
    assert "cuda.oom" in shown["signatures"]
    assert shown["methods"] == {"exception"}
    assert "exception.ranks" in shown["facts"]
    assert set(shown["facts"]) <= set(earned.known(rules)["facts"])


def test_what_did_not_hold_is_not_counted(tmp_path: Path, rules: RuleSet) -> None:
    log = tmp_path / "log"
    log.write_text("step 1/2 loss 2.1\nstep 2/2 loss 2.0\nTraining completed.\n", "utf-8")
    found = diagnose(log, rules=rules)
    shown = earned.shown(found.case, [])
    assert not any(name.startswith("gpu-out-of-memory/") for name in shown["rows"])
    assert not shown["methods"]
