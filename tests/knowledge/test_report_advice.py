"""What a report advises from the knowledge."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.checks.causes import DESTRUCTIVE
from nccl_triage.engine import nodes
from nccl_triage.engine.read_causes import read_stages
from nccl_triage.engine.schema import PlatformCommand, RuleSet, Step
from nccl_triage.errors import RuleError
from nccl_triage.knowledge import catalogue, report_advice
from nccl_triage.knowledge.report_advice import MAX_REMARKS, collective_advice, environment_remarks

GATHER = {
    "op": "_ALLGATHER_BASE", "numel_in": 116391936, "numel_out": 931135488, "dtype": None, "world_size": 8,
    "timeout_ms": 43200000,
}  # fmt: skip


def say(**changes: Any) -> dict[str, Any]:
    found = collective_advice({**GATHER, **changes}, {}, [])
    assert found is not None
    return found


def test_a_large_gather_does_not_explain_twelve_hours() -> None:
    found = say()
    assert found["bytes"] == 116391936 * 8 * 4
    assert found["seconds_expected"] == pytest.approx(32.59, abs=0.01)
    assert found["dtype_assumed"] == "fp32"
    assert "does not explain" in found["says"]
    assert "fp32 assumed" in found["says"]
    assert "解释不了" in found["says_zh"]
    assert [row["program"] for row in found["owner"]] == ["openrlhf"]


def test_a_known_dtype_is_not_assumed() -> None:
    found = say(dtype="bf16")
    assert found["bytes"] == 116391936 * 8 * 2
    assert found["dtype_assumed"] is None
    assert "assumed" not in found["says"]


def test_a_short_time_out_can_be_too_short_for_a_slow_network() -> None:
    assert "Measure the bandwidth" in say(timeout_ms=10_000)["says"]


@pytest.mark.parametrize(("op", "numel"), [("BARRIER", None), ("ALLREDUCE", 1)])
def test_a_barrier_moves_next_to_nothing(op: str, numel: int | None) -> None:
    assert "almost no data" in say(op=op, numel_in=numel)["says"]


@pytest.mark.parametrize(
    "changes",
    [{"numel_in": None, "numel_out": None}, {"numel_in": 2**64 - 1}, {"op": None}, {"op": "</script>"}, {"dtype": "complex"},
     {"world_size": None, "numel_out": None}, {"world_size": 0, "numel_out": 2**64 - 1}],
)  # fmt: skip
def test_without_a_size_only_the_owner_is_told(changes: dict[str, Any]) -> None:
    found = say(timeout_ms=600000, **changes)
    assert found["bytes"] is None
    assert found["seconds_expected"] is None
    assert found["owner"]
    assert "script" not in found["says"]


def test_a_group_of_unknown_size_still_has_an_upper_bound() -> None:
    gather = say(world_size=None)
    assert gather["bytes"] == 931135488 * 4
    assert gather["seconds_expected"] == pytest.approx(931135488 * 4 / 0.1e9, rel=1e-3)
    reduce = say(op="ALLREDUCE", world_size=None, numel_in=1000000, numel_out=None)
    assert reduce["bytes"] == 4000000
    assert reduce["seconds_expected"] == pytest.approx(0.08)


def test_a_very_short_time_out_is_not_called_ample() -> None:
    assert "as short as 1.8 s" in say(numel_in=None, numel_out=None, timeout_ms=1800)["says"]
    assert "late or absent" in say(numel_in=None, numel_out=None, timeout_ms=600000)["says"]


@pytest.mark.parametrize("limit", [None, 0, -5, True, "600000", 1.5])
def test_without_a_time_out_nothing_is_said(limit: Any) -> None:
    assert collective_advice({**GATHER, "timeout_ms": limit}, {}, []) is None


def test_how_to_change_it_stands_beside_who_set_it() -> None:
    rows = collective_advice({**GATHER, "timeout_ms": 1800000}, {"deepspeed": "0.16.4"}, ["deepspeed"])
    assert rows is not None
    assert rows["owner"][0]["program"] == "deepspeed"
    assert rows["owner"][0]["change"] == "DEEPSPEED_TIMEOUT=MINUTES"
    assert len(rows["owner"]) <= 4


def test_a_number_of_nobody_has_no_owner() -> None:
    assert say(timeout_ms=777000)["owner"] == []


ROOT = Path(__file__).parents[2]


def test_remarks_are_sorted_by_name_and_speak_both_languages() -> None:
    found = environment_remarks({"NCCL_P2P_DISABLE": "1", "NCCL_IB_HCA": "mlx5", "NCCL_DEBUG": "INFO"}, {})
    assert [row["name"] for row in found] == ["NCCL_IB_HCA", "NCCL_P2P_DISABLE"]
    assert all(row["says"] and row["says_zh"] for row in found)
    assert found[0]["level"] == "warn"


def test_each_value_of_different_hosts_is_judged_once() -> None:
    found = environment_remarks({"NCCL_IB_DISABLE": ["0", "1", "1"]}, {})
    assert [(row["value"], row["kind"]) for row in found] == [("0", "default"), ("1", "debugging")]


def test_warnings_are_kept_when_there_are_too_many() -> None:
    noise = {f"TORCH_LOGS_{n}": "x" for n in range(5)}
    values = {"NCCL_P2P_DISABLE": [f"0x{1:0{n}x}" for n in range(1, 50)], "NCCL_IB_HCA": "mlx5", **noise}
    found = environment_remarks(values, {})
    assert len(found) == MAX_REMARKS
    assert any(row["name"] == "NCCL_IB_HCA" for row in found)


def test_an_endless_environment_costs_no_endless_time() -> None:
    found = environment_remarks({f"NCCL_NOPE_{n}": "1" for n in range(5000)}, {})
    assert len(found) == MAX_REMARKS


def test_rccl_reads_names_that_nccl_does_not() -> None:
    assert environment_remarks({"NCCL_NOPE": "1"}, {"rccl": "2.21.5"}) == []
    assert environment_remarks({"NCCL_NOPE": "1"}, {}) != []


def test_odd_values_of_a_document_are_no_problem() -> None:
    assert environment_remarks({}, {}) == []
    assert environment_remarks({"NCCL_DEBUG": []}, {}) == []
    assert environment_remarks({"NCCL_DEBUG": None}, {})[0]["kind"] == "outside"


def test_nothing_is_read_for_a_log_without_variables() -> None:
    program = (
        "import sys\nfrom nccl_triage.knowledge.report_advice import environment_remarks\nenvironment_remarks({}, {})\n"
        "print([m for m in sys.modules if m in ('nccl_triage.knowledge.variables', 'yaml', 'difflib')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60,
        env={"PYTHONPATH": str(ROOT / "analyzer"), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert result.stdout.strip() == "[]"


LOOK = PlatformCommand((("otherwise", "ls"),))


def written(command: PlatformCommand | None) -> str:
    return "\n".join(command.listed()) if command is not None else ""


def test_steps_come_in_the_order_of_their_stages(rules: RuleSet) -> None:
    for cause in rules.causes.values():
        whens = [row["when"] for row in report_advice.staged_steps(cause)]
        assert list(dict.fromkeys(whens)) == ["5min", "15min", "lasting"]


def test_hangs_are_looked_into_while_they_last(rules: RuleSet) -> None:
    for name in ("rank-divergence", "straggler", "collective-mismatch", "sharded-generate"):
        commands = [
            written(row["command"]) for row in report_advice.staged_steps(rules.causes[name]) if row["when"] == "5min"
        ]
        assert any("py-spy dump" in command for command in commands)


@pytest.mark.parametrize(
    "command",
    ["rm -rf /dev/shm/*", "ls; kill -9 1", "sudo systemctl restart x", "pgrep x | xargs kill", "echo > /dev/sda"],
)
def test_what_counts_as_destructive(command: str) -> None:
    assert DESTRUCTIVE.search(command)
    assert not DESTRUCTIVE.search(f"grep '{command.split()[0]}' LOG  # {command.split()[0]}")


def test_a_step_of_its_own_and_a_shared_one(rules: RuleSet) -> None:
    own = Step(what={"en": "Look.", "zh": "看。"}, command=LOOK, urgency="low")
    cause = rules.causes["straggler"]._replace(stages={"now": (own, Step(use="save-logs")), "soon": (), "lasting": ()})
    first, second = report_advice.staged_steps(cause)
    assert first == {"when": "5min", "urgency": "low", "what": "Look.", "what_zh": "看。", "command": LOOK}
    assert second["command"] == catalogue.steps()["save-logs"].command
    assert second["urgency"] == "high"


def test_a_users_rule_with_an_unknown_step_does_not_stop_a_diagnosis(rules: RuleSet) -> None:
    cause = rules.causes["straggler"]._replace(stages={"now": (Step(use="none-such"),)})
    assert report_advice.staged_steps(cause) == []
    assert [name for _, name in report_advice.unknown_steps([cause])] == ["none-such"]


def test_a_cause_without_stages_has_no_rows(rules: RuleSet) -> None:
    assert report_advice.staged_steps(rules.causes["straggler"]._replace(stages={})) == []


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("now: []\nsoon: []", 1, "'lasting' is missing"),
        ("now:\n  - {command: ls}\nsoon: []\nlasting: []", 2, "needs 'what' or 'use'"),
        ("now:\n  - {use: a, what: {en: a, zh: 啊}}\nsoon: []\nlasting: []", 2, "needs 'what' or 'use'"),
        ("now:\n  - {use: a, urgency: soon}\nsoon: []\nlasting: []", 2, "not one of high"),
        ("now: []\nsoon: []\nlasting: []\nlater: []", 4, "unknown key 'later'"),
    ],
)
def test_wrong_stages_point_at_the_line(text: str, line: int, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        read_stages(nodes.parse(text, "rules/causes/x.yaml"))
    assert message in str(caught.value)
    assert caught.value.where == f"rules/causes/x.yaml:{line}"
