"""The commands that fixes and checks offer: valid shell, and Python one-liners that compile and know their names."""

from __future__ import annotations

import ast
import builtins
import re
import shutil
import subprocess

import pytest

from nccl_triage.engine.schema import RuleSet

PYTHON = re.compile(r"python3? -c (?P<quote>['\"])(?P<code>.*?)(?P=quote)")
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


def _unknown_names(code: str) -> set[str]:
    tree = ast.parse(code)
    known = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            known |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} - known


def test_python_one_liners_compile_and_know_their_names(rules: RuleSet) -> None:
    codes = [(cause, match["code"]) for cause, text in _commands(rules) for match in PYTHON.finditer(text)]
    assert len(codes) > 5
    assert {(cause, code): names for cause, code in codes if (names := _unknown_names(code))} == {}


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_commands_are_valid_shell(rules: RuleSet) -> None:
    wrong = []
    for cause, text in _commands(rules):
        script = PLACEHOLDER.sub("VALUE", text)
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
        if done.returncode:
            wrong.append((cause, text, done.stderr.strip()))
    assert wrong == []
