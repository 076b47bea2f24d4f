"""What a record lacks is named where it matters, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.checks import names
from nccl_triage.engine import load
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import RuleError
from tests.scan_helpers import diagnose_text

WATCHDOG = (
    "[rank0]:[E1206 18:44:00.100 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600001 milliseconds "
    "before timing out.\n"
)
USING = "n1:10:10 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n"


def missing(text: str, rules: RuleSet) -> set[str]:
    return {item["id"] for item in diagnose_text(text, rules).to_dict()["not_seen"]}


def test_a_bare_time_out_lacks_stacks_the_recorder_and_nccls_report(rules: RuleSet) -> None:
    assert {"nccl-report", "flight-recorder", "stacks"} <= missing(WATCHDOG, rules)


def test_what_is_there_is_not_asked_for(rules: RuleSet) -> None:
    assert "nccl-report" not in missing(USING + WATCHDOG, rules)


def test_a_batch_size_error_asks_for_nothing_of_nccl(rules: RuleSet) -> None:
    text = (
        "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
        "gradient_acc_step * world_size 256 != 2 * 18 * 7\n"
    )
    assert not {"nccl-report", "flight-recorder", "stacks", "kernel-log"} & missing(text, rules)


def test_times_are_asked_for_where_the_failure_has_none(rules: RuleSet) -> None:
    assert "times" in missing("[rank2]: torch.OutOfMemoryError: CUDA out of memory.\n", rules)
    assert "times" not in missing(WATCHDOG, rules)


def test_witnesses_speak_of_known_signatures_and_facts(rules: RuleSet) -> None:
    from nccl_triage.diagnosis.case import fact_names
    from nccl_triage.producers import produced_signatures

    assert names.check_witnesses(rules, fact_names(), produced_signatures()) == []


WITNESS = "witnesses:\n  - id: mine\n    when: {}\n    what: {{en: a, zh: b}}\n    why: {{en: a, zh: b}}\n"


def test_a_witness_of_ones_own_is_checked(tmp_path: Path) -> None:
    folder = tmp_path / "witnesses"
    folder.mkdir()
    (folder / "mine.yaml").write_text(WITNESS.format("not has('nccl.no_such') and fact('no.such')"))
    found = names.check_witnesses(load.load((tmp_path,)), (), {})
    assert {"mine"} <= {finding.rule for finding in found}
    assert any("'nccl.no_such'" in finding.message for finding in found)
    assert any("'no.such'" in finding.message for finding in found)


@pytest.mark.parametrize(
    ("text", "where"),
    [(WITNESS.format("has("), ":3"), (WITNESS.format("has('nccl.*')") * 1 + "  - id: mine\n", ":6")],
)
def test_a_broken_witness_is_told_with_its_line(tmp_path: Path, text: str, where: str) -> None:
    (tmp_path / "witnesses").mkdir()
    (tmp_path / "witnesses" / "mine.yaml").write_text(text)
    with pytest.raises(RuleError) as caught:
        load.load((tmp_path,))
    assert where in str(caught.value)
