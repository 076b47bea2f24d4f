"""Finds, in the source, every text that is printed to a person: what ``messages`` must be able to translate."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "analyzer" / "nccl_triage"
#: The classes of errors.py.
ERRORS = {"TriageError", "UsageError", "InputError", "OutputError", "HistoryError", "RuleError"}
#: Function or method -> which of its positional arguments are texts.
SPEAKERS = {
    "fail": (0, 1),  # engine.nodes.Node.fail
    "say": (0,),
    "tell": (0,),
    "text": (0,),
    "fill": (0,),
    "broken": (1,),  # cli.config_files
    "_misspelt": (0, 4),  # cli.settings
}
#: Objects whose method of one of these names is one of ours; ``part.text()`` and ``marks.say()`` are not.
OWNERS = {
    "say": {"language", "wish", "self", "page", None},
    "text": {"language"},
    "fill": {"messages"},
    "tell": {"wish", "self"},
}
#: Variables that hold a text on its way to one of these.
CARRIERS = {"template", "remedy", "cause", "listing"}
#: Parameters that pass such a text on.
PASSED = {"message", "text", "line", "english"}
#: Packages whose calls of these names are something else: their own pages and protocols.
ELSEWHERE = ("render", "verify/worker", "hosts/ray_actors.py", "hosts/agent.py", "hang/collect.py", "verify/plan.py")


@dataclass(frozen=True)
class Text:
    """A text, or what stands where one was expected (``literal`` is None), with its place."""

    literal: str | None
    where: str
    source: str


def all_texts() -> list[Text]:
    """Return the texts of all modules."""
    return [text for path in sorted(SOURCE.rglob("*.py")) for text in of_module(path.read_text("utf-8"), path)]


def of_module(source: str, path: Path) -> Iterator[Text]:
    """Yield the texts of one module."""
    tree = ast.parse(source)
    inside = path.relative_to(SOURCE).as_posix() if path.is_relative_to(SOURCE) else path.name
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        for expression in _expressions(node, inside):
            yield from _literals(expression, constants, f"{inside}:{expression.lineno}")


def _expressions(node: ast.AST, inside: str) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id in CARRIERS for t in node.targets):
        yield from _constants(node.value)
    if not isinstance(node, ast.Call):
        return
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in ERRORS:
        yield from node.args[:1]
        yield from (keyword.value for keyword in node.keywords if keyword.arg in ("cause", "remedy"))
    elif name in SPEAKERS and _ours(node.func, name) and not inside.startswith(ELSEWHERE):
        given = [node.args[at] for at in SPEAKERS[name] if at < len(node.args)]
        # What is computed is translated elsewhere; what is put together here cannot be.
        yield from (e for e in given if isinstance(e, (ast.Constant, ast.IfExp, ast.JoinedStr, ast.BinOp, ast.Name)))


def _constants(expression: ast.expr) -> Iterator[ast.expr]:
    """Yield the texts among which an assignment chooses, if it does nothing else."""
    if isinstance(expression, ast.IfExp):
        yield from _constants(expression.body)
        yield from _constants(expression.orelse)
    elif isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        yield expression


def _ours(function: ast.expr, name: str) -> bool:
    if name not in OWNERS:
        return True
    owner = function.value if isinstance(function, ast.Attribute) else None
    return (owner.id if isinstance(owner, ast.Name) else owner) in OWNERS[name]


def _literals(expression: ast.expr, constants: dict[str, ast.expr], where: str) -> Iterator[Text]:
    if isinstance(expression, ast.Constant):
        if isinstance(expression.value, str):
            yield Text(expression.value, where, ast.unparse(expression))
    elif isinstance(expression, ast.IfExp):
        yield from _literals(expression.body, constants, where)
        yield from _literals(expression.orelse, constants, where)
    elif isinstance(expression, ast.Name) and expression.id in constants:
        yield from _literals(constants[expression.id], constants, where)
    elif isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add):
        parts = [list(_literals(side, constants, where)) for side in (expression.left, expression.right)]
        texts = [part[0].literal for part in parts if len(part) == 1 and part[0].literal is not None]
        yield Text("".join(texts) if len(texts) == 2 else None, where, ast.unparse(expression))
    elif not (isinstance(expression, ast.Name) and expression.id in (*CARRIERS, *PASSED)):
        yield Text(None, where, ast.unparse(expression))
