"""The workflow for GitHub Actions: valid, and its own shell steps run as a runner runs them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import EXAMPLES, Commands, program
from .pages import block

WORKFLOW = EXAMPLES / "github-actions" / "distributed-test.yml"
FAILED = """[rank1]: Traceback (most recent call last):
[rank1]: ValueError: 100%, ::error::not a command
"""


def job() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["distributed"]
    return found


@dataclass
class Outcome:
    """What a run left."""

    folder: Path
    failed: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)


def run_job(commands: Commands, folder: Path) -> Outcome:
    """Run the steps as a runner does: in order, those with ``if: failure()`` only after a failure."""
    outcome = Outcome(folder)
    for step in job()["steps"]:
        condition = step.get("if", "success()")
        if condition.startswith("failure()") != bool(outcome.failed):
            continue
        name = step.get("name", step.get("uses"))
        outcome.ran.append(name)
        if "run" not in step:
            continue
        script = folder / "step.sh"
        script.write_text(step["run"], encoding="utf-8")
        env = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(folder / "summary.md"), **step.get("env", {})}
        result = commands.run("bash", "--noprofile", "--norc", "-eo", "pipefail", script, cwd=folder, env=env)
        outcome.said[name] = result.stdout
        if result.returncode:
            outcome.failed.append(name)
    return outcome


@pytest.fixture
def outcome(request: pytest.FixtureRequest, commands: Commands, tmp_path: Path) -> Outcome:
    commands.add("pip", "")
    commands.add("torchrun", f"cat <<'LOG'\n{FAILED}LOG\nexit {request.param}")
    folder = tmp_path / "checkout"
    folder.mkdir()
    return run_job(commands, folder)


def test_the_public_schema_accepts_the_workflow(commands: Commands) -> None:
    result = commands.run(program("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", WORKFLOW)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_page_shows_what_the_workflow_does() -> None:
    (shown,) = yaml.safe_load(block("github-actions.md", "Say why", "yaml"))
    (real,) = [step for step in job()["steps"] if step.get("name") == shown["name"]]
    assert real["run"].startswith(shown["run"]) and real["if"] == shown["if"]


@pytest.mark.parametrize("outcome", [1], indirect=True)
def test_a_failure_is_annotated_summarised_and_kept(outcome: Outcome) -> None:
    assert outcome.failed == ["Distributed test"]  # and no step after it
    lines = outcome.said["Say why it failed"].splitlines()
    commands = [line for line in lines if line.startswith("::")]
    assert commands[0].startswith("::error file=logs/torchrun.log,line=2,")
    assert "application-exception" in commands[0]
    assert not [line for line in commands if line.startswith("::error::not a command")]
    summary = (outcome.folder / "summary.md").read_text(encoding="utf-8")
    assert "application-exception" in summary
    sarif = json.loads((outcome.folder / "triage.sarif").read_text(encoding="utf-8"))
    assert sarif["runs"][0]["results"][0]["ruleId"] == "application-exception"
    junit = ElementTree.fromstring((outcome.folder / "triage.xml").read_text(encoding="utf-8"))
    assert junit.get("failures") == "1"
    kept = next(step for step in job()["steps"] if step.get("name") == "Keep logs and report")["with"]["path"]
    assert all((outcome.folder / path).exists() for path in kept.split())
    assert outcome.ran[-1] == "Keep logs and report"


@pytest.mark.parametrize("outcome", [0], indirect=True)
def test_a_success_is_not_triaged(outcome: Outcome) -> None:
    assert outcome.failed == [] and outcome.ran[-1] == "Distributed test"
    assert not list(outcome.folder.glob("triage*")) and not (outcome.folder / "summary.md").exists()
