"""Staged advice: complete, in order, and safe."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from nccl_triage.engine import load, nodes
from nccl_triage.engine import stages as engine_stages
from nccl_triage.engine.schema import RuleSet, Step
from nccl_triage.errors import RuleError
from nccl_triage.knowledge import catalogue, stages

CAUSES = sorted(load.load().causes)
#: Commands that cannot be taken back, or that hit what is not the job's own.
DESTRUCTIVE = re.compile(
    r"(?:^|[;&|(]|\bsudo|\bxargs)\s*(?:rm|kill|killall|pkill|reboot|shutdown|mkfs\S*|dd|scancel|truncate|modprobe|iptables|"
    r"ip link set|systemctl (?:re)?start|systemctl stop|docker rm|ray stop|kubectl delete|nvidia-smi --gpu-reset)\b"
    r"|>\s*/dev/(?!null)"
)


@pytest.mark.parametrize("name", CAUSES)
def test_every_cause_has_its_stages_in_order(rules: RuleSet, name: str) -> None:
    rows = stages.rows(rules.causes[name])
    whens = [row["when"] for row in rows]
    assert whens == sorted(whens, key=["5min", "15min", "lasting"].index)
    assert set(whens) == {"5min", "15min", "lasting"}
    for row in rows:
        assert row["what"]
        assert any("\u4e00" <= char <= "\u9fff" for char in row["what_zh"])
        assert row["urgency"] in ("high", "medium", "low")


@pytest.mark.parametrize("name", CAUSES)
def test_nothing_of_the_first_five_minutes_destroys_anything(rules: RuleSet, name: str) -> None:
    for row in stages.rows(rules.causes[name]):
        if row["when"] == "5min":
            assert not DESTRUCTIVE.search(row["command"] or ""), row["command"]


@pytest.mark.parametrize("name", CAUSES)
def test_evidence_is_saved_before_anything_is_restarted(rules: RuleSet, name: str) -> None:
    shown = [row["what"].lower() for row in stages.rows(rules.causes[name]) if row["when"] == "5min"]
    restart = next((at for at, text in enumerate(shown) if "get the job going again" in text), None)
    if restart is not None and name not in ("job-preempted", "terminal-hangup"):
        assert any("save" in text for text in shown[:restart])


def test_hangs_are_looked_into_while_they_last(rules: RuleSet) -> None:
    for name in ("rank-divergence", "straggler", "collective-mismatch", "sharded-generate"):
        commands = [row["command"] or "" for row in stages.rows(rules.causes[name]) if row["when"] == "5min"]
        assert any("py-spy dump" in command for command in commands)


@pytest.mark.parametrize(
    "command",
    ["rm -rf /dev/shm/*", "ls; kill -9 1", "sudo systemctl restart x", "pgrep x | xargs kill", "echo > /dev/sda"],
)
def test_what_counts_as_destructive(command: str) -> None:
    assert DESTRUCTIVE.search(command)
    assert not DESTRUCTIVE.search(f"grep '{command.split()[0]}' LOG  # {command.split()[0]}")


def test_no_shared_step_destroys_anything() -> None:
    assert [step.id for step in catalogue.steps().values() if DESTRUCTIVE.search(step.command or "")] == []


def test_a_step_of_its_own_and_a_shared_one(rules: RuleSet) -> None:
    own = Step(what={"en": "Look.", "zh": "看。"}, command="ls", urgency="low")
    cause = replace(rules.causes["straggler"], stages={"now": (own, Step(use="save-logs")), "soon": (), "lasting": ()})
    first, second = stages.rows(cause)
    assert first == {"when": "5min", "urgency": "low", "what": "Look.", "what_zh": "看。", "command": "ls"}
    assert second["command"] == catalogue.steps()["save-logs"].command
    assert second["urgency"] == "high"


def test_a_users_rule_with_an_unknown_step_does_not_stop_a_diagnosis(rules: RuleSet) -> None:
    cause = replace(rules.causes["straggler"], stages={"now": (Step(use="none-such"),)})
    assert stages.rows(cause) == []
    assert [name for _, name in stages.unknown_steps([cause])] == ["none-such"]


def test_a_cause_without_stages_has_no_rows(rules: RuleSet) -> None:
    assert stages.rows(replace(rules.causes["straggler"], stages={})) == []


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("now: []\nsoon: []", 1, "'lasting' is missing"),
        ("now:\n  - {command: ls}\nsoon: []\nlasting: []", 2, "needs 'what' or 'use'"),
        ("now:\n  - {use: a, what: {en: a, zh: 啊}}\nsoon: []\nlasting: []", 2, "needs 'what' or 'use'"),
        ("now:\n  - {use: a, urgency: soon}\nsoon: []\nlasting: []", 2, "none of high"),
        ("now: []\nsoon: []\nlasting: []\nlater: []", 4, "unknown key 'later'"),
    ],
)
def test_wrong_stages_point_at_the_line(text: str, line: int, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        engine_stages.read(nodes.parse(text, "rules/causes/x.yaml"))
    assert message in str(caught.value)
    assert caught.value.where == f"rules/causes/x.yaml:{line}"
