"""The commands that fixes and checks offer are valid shell."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from nccl_triage.engine.schema import RuleSet

#: Words in capitals that stand for the reader's own values.
PLACEHOLDER = re.compile(r"<[A-Za-z_ -]+>")


def _commands(rules: RuleSet) -> list[tuple[str, str]]:
    found = []
    for cause in rules.causes.values():
        steps = [step.command for stage in cause.stages.values() for step in stage]
        offered = [
            *(command for fix in cause.fixes for command in fix.commands),
            *(c.command for c in cause.checks),
            *steps,
        ]
        found += [(cause.id, text) for command in offered if command is not None for _, text in command.choices]
    return found


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_commands_are_valid_shell(rules: RuleSet) -> None:
    wrong = []
    for cause, text in _commands(rules):
        script = PLACEHOLDER.sub("VALUE", text)
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
        if done.returncode:
            wrong.append((cause, text, done.stderr.strip()))
    assert wrong == []
