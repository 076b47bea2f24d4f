"""Checks the Python one-liners among the commands that rules offer: they compile, and know the names that they use."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from nccl_triage.checks.problem import RuleProblem
from nccl_triage.engine.schema import Cause, PlatformCommand, RuleSet
from nccl_triage.knowledge import catalogue
from nccl_triage.lazy_regex import lazily

_ONE_LINER = lazily(r"python3? -c (?P<quote>['\"])(?P<code>.*?)(?P=quote)")


def check(rules: RuleSet) -> list[RuleProblem]:
    """Return what is wrong with the commands of causes and of shared steps."""
    found: list[RuleProblem] = []
    offered = [(cause.id, where, command) for cause in rules.causes.values() for where, command in _of_cause(cause)]
    offered += [(step.id, step.where, step.command) for step in catalogue.steps().values()]
    for rule, where, command in offered:
        for _, text in command.choices if command is not None else ():
            for match in _ONE_LINER.finditer(text):
                wrong = _wrong(match["code"])
                found += [RuleProblem("error", where, rule, f"its Python {wrong}", text)] if wrong else []
    return found


def _of_cause(cause: Cause) -> Iterator[tuple[str, PlatformCommand | None]]:
    for fix in cause.fixes:
        yield from ((fix.where, command) for command in fix.commands)
    yield from ((one.where, one.command) for one in cause.checks)
    yield from ((step.where, step.command) for stage in cause.stages.values() for step in stage)


def _wrong(code: str) -> str | None:
    """Return what is wrong with a program, None if nothing is."""
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        return f"does not compile: {error.msg}"
    known = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            known |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return f"uses names that nothing defines: {', '.join(sorted(used - known))}" if used - known else None
