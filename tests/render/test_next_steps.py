from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.render.text_page import TextPage, chosen, is_open, steps
from nccl_triage.render.unknown_text import UnknownParts, unknown


@pytest.mark.parametrize(
    "command",
    [
        "ssh HOST nvidia-smi",
        "ping PEER_ADDRESS",
        "py-spy dump --pid <pid>",
        "py-spy dump --pid <pid of the silent rank>",
        "torchrun ... train.py",
        "df -h PATH; df -i PATH",
        "kubectl logs POD",
        "sbatch --exclude=NODE job.sh",
        "torchrun --nnodes=N train.py",
        "python -c \"print(LLM('MODEL'))\"",
    ],
)
def test_a_placeholder_is_seen(command: str) -> None:
    assert is_open(command)


@pytest.mark.parametrize(
    "command",
    [
        "nvidia-smi -q -d PERFORMANCE,CLOCK",
        "export NCCL_P2P_DISABLE=1",
        "export TORCH_DISTRIBUTED_DEBUG=DETAIL",
        "echo $PATH ${HOST} $MASTER_PORT",
        "dmesg -T | grep -iE 'link is|NETDEV|Xid'",
        "env | grep -E '^(RANK|MASTER_PORT)='",
        "# Kubernetes: mount an emptyDir with medium: Memory",
        "MASTER_PORT=29501 python train.py",
    ],
)
def test_names_of_variables_are_no_placeholders(command: str) -> None:
    assert not is_open(command)


def diagnosis(*commands: list[str], **more: Any) -> dict[str, Any]:
    fixes = [{"title": f"fix {n}", "commands": lines} for n, lines in enumerate(commands)]
    return {"fixes": fixes, "next_check": {"what": "ask", "command": "check it"}, "status": "supported", **more}


def commands(found: dict[str, Any], most: int = 3) -> list[str]:
    return [command for step in chosen(steps(found, "en"), most) for command in step.commands]


def test_repairs_come_first_then_what_can_be_run_before_what_has_a_placeholder() -> None:
    assert commands(diagnosis(["ssh HOST", "run a"], ["run b", "kill POD"])) == ["ssh HOST", "run b", "check it"]
    looks = titled("See HOST", "See it", "Lower it")
    looks["fixes"][0]["commands"] = ["ssh HOST"]
    assert commands(looks) == ["look", "check it", "ssh HOST"]


def test_no_command_comes_twice_and_three_are_enough() -> None:
    assert commands(diagnosis(["a", "b"], ["b", "c"], ["d"])) == ["a", "b", "c"]


def test_the_repair_comes_before_the_check_even_where_little_is_sure() -> None:
    assert commands(diagnosis(["a"], status="possible")) == ["a", "check it"]


def test_a_second_repair_is_told_where_the_first_leaves_room() -> None:
    found = titled("Lower the batch size", "Shard the model", "Buy a GPU")
    assert [step.what for step in chosen(steps(found, "en"), 3)] == ["Lower the batch size", "Shard the model", "ask"]
    found["fixes"][0]["commands"] = ["a", "b", "c"]
    assert [step.what for step in chosen(steps(found, "en"), 3)] == ["Lower the batch size"]


def test_a_first_fix_without_a_command_is_told() -> None:
    assert [step.what for step in chosen(steps(diagnosis([], ["a"]), "en"), 3)] == ["fix 0", "fix 1", "ask"]


def test_variables_are_set_by_one_command() -> None:
    fix = {"title": "t", "env": {"B": "x y", "A": 1}, "commands": []}
    assert commands({"fixes": [fix]}) == ["export A=1 B='x y'"]


def titled(*titles: str, status: str = "supported", runs: str = "look") -> dict[str, Any]:
    fixes = [
        {"title": title, "commands": [runs] if title.startswith(("See", "Save", "Read")) else []} for title in titles
    ]
    return {"fixes": fixes, "next_check": {"what": "ask", "command": "check it"}, "status": status}


@pytest.mark.parametrize("status", ["supported", "possible"])
def test_a_repair_without_a_command_is_told_beside_what_only_looks(status: str) -> None:
    found = [
        step.what for step in chosen(steps(titled("See what it was", "Lower the batch size", status=status), "en"), 3)
    ]
    assert found == ["Lower the batch size", "See what it was", "ask"]


def test_what_to_find_is_told_where_nothing_repairs() -> None:
    found = [step.what for step in chosen(steps(titled("Save the stacks", "Find what made it leave"), "en"), 3)]
    assert found[0] == "Find what made it leave" and "Save the stacks" in found


def test_an_unknown_cause_shows_the_repair_of_the_likeliest() -> None:
    page = TextPage(False, None, "en")
    one = {"id": "x", "cause": "shared-memory-exhausted", "title": "memory", "confidence": 0.4, **titled("See it", "Enlarge it", status="possible")}  # fmt: skip
    other = {
        "id": "y",
        "cause": "os-limit",
        "title": "limit",
        "confidence": 0.1,
        **titled("Raise it", status="possible"),
    }
    unknown(page, {"headline": "unknown", "diagnoses": [one, other]}, UnknownParts())
    text = "\n".join(page.lines)
    assert "repair: Enlarge it" in text and "Raise it" not in text
