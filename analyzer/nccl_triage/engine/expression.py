"""Conditions of rules: a small, safe subset of Python expressions.

It has comparisons, arithmetic on numbers, ``and``/``or``/``not``, membership, conditional expressions, literals, lists,
calls of the functions listed in ``rules/README.md``, and ``f.NAME`` for a field of the current event. It has no
attributes of objects, no subscripts, no comprehensions, and no names of Python itself. The source is parsed, checked,
and evaluated by walking its syntax tree; nothing is compiled or executed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Set
from typing import Any

from nccl_triage.errors import RuleError

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_CONSTANTS = {"none": None, "true": True, "false": False}
_MAX_SOURCE = 2000
#: Limit of nesting, so that checking and evaluating a condition cannot exhaust the stack. Each "+" of a sum nests once.
_MAX_DEPTH = 100
#: Functions whose argument names a term of rules/terms, and must therefore be a literal.
_NAMED_TERMS = ("premise", "words")


def _is_one_text(arguments: list[ast.expr]) -> bool:
    return len(arguments) == 1 and isinstance(arguments[0], ast.Constant) and isinstance(arguments[0].value, str)


class Missing(Exception):
    """Raised if a value that the expression needs is unknown: the condition does not hold."""


#: Errors that a condition over incomplete or odd values may raise: each means that it does not hold.
_NO_VALUE = (Missing, TypeError, ValueError, ZeroDivisionError, OverflowError, AttributeError, LookupError)


class Expression:
    """A checked expression: its source text, and its syntax tree, which is made on first use: a run needs few of them."""

    __slots__ = ("_calls", "_tree", "source", "where")

    def __init__(self, source: str, where: str) -> None:
        self.source = source
        self.where = where
        self._tree: ast.expr | None = None
        self._calls: dict[str, list[list[str]]] | None = None

    @property
    def tree(self) -> ast.expr:
        """The syntax tree; raises the errors of ``ast.parse`` if the source is not valid."""
        if self._tree is None:
            self._tree = ast.parse(" ".join(self.source.split()), mode="eval").body
        return self._tree

    def __reduce__(self) -> tuple[Any, ...]:
        return (Expression, (self.source, self.where))

    def names(self) -> set[str]:
        """Return the names of the functions that the expression calls."""
        return {
            node.func.id
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }

    def fields(self) -> set[str]:
        """Return the names of the fields of the current event that the expression uses."""
        return {node.attr for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)}

    def calls(self, function: str) -> list[list[str]]:
        """Return the constant text arguments of each call of ``function``."""
        if self._calls is None:
            self._calls = {}
            for node in ast.walk(self.tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    values = [one.value for one in node.args if isinstance(one, ast.Constant)]
                    texts = [value for value in values if isinstance(value, str)]
                    self._calls.setdefault(node.func.id, []).append(texts)
        return self._calls.get(function, [])

    def literals(self, function: str) -> list[str]:
        """Return the constant text arguments of all calls of ``function``."""
        return [text for texts in self.calls(function) for text in texts]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _check(node: ast.AST, where: str, depth: int = 0) -> None:
    if depth > _MAX_DEPTH:
        raise RuleError("nested too deeply", where=where)
    if isinstance(node, (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)):
        if isinstance(node, ast.Invert) or (isinstance(node, ast.operator) and type(node) not in _BINARY):
            raise RuleError("this operator is not allowed in a condition", where=where)
        return
    operands = [node.left, node.right] if isinstance(node, ast.BinOp) else []
    if any(
        isinstance(part, (ast.List, ast.Tuple)) or (isinstance(part, ast.Constant) and not _is_number(part.value))
        for part in operands
    ):
        raise RuleError("arithmetic is for numbers", where=where)
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, (str, int, float, bool)):
            raise RuleError("only numbers and texts are allowed in a condition", where=where)
        return
    if isinstance(node, ast.Attribute):
        if not (isinstance(node.value, ast.Name) and node.value.id == "f") or node.attr.startswith("_"):
            raise RuleError("attributes are allowed only as f.FIELD", where=where)
        return
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise RuleError("only the listed functions can be called, with plain arguments", where=where)
        if node.func.id in _NAMED_TERMS and not _is_one_text(node.args):
            raise RuleError("{name} takes one text in quotes", where=where, name=node.func.id)
        children: list[ast.AST] = list(node.args)
    elif isinstance(node, (ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.List, ast.Tuple)):
        children = list(ast.iter_child_nodes(node))
    elif isinstance(node, ast.Name):
        if node.id not in _CONSTANTS:
            raise RuleError("unknown name {id!r}", where=where, remedy="texts need quotes", id=node.id)
        return
    else:
        raise RuleError("{name} is not allowed in a condition", where=where, name=type(node).__name__)
    for child in children:
        _check(child, where, depth + 1)


def parse(source: str, where: str, functions: Set[str] | None = None) -> Expression:
    """Parse and check a condition; ``functions`` are the allowed function names (None: any)."""
    if len(source) > _MAX_SOURCE:
        raise RuleError("the condition is too long", where=where)
    expression = Expression(source, where)
    try:
        tree = expression.tree
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RuleError(
            "cannot read the condition {source!r}: {error}", where=where, source=source, error=error
        ) from None
    _check(tree, where)
    if functions is not None:
        for name in expression.names() - functions:
            raise RuleError(
                "unknown function {name!r} in a condition", where=where, remedy="rules/README.md lists them", name=name
            )
    return expression


class Evaluator:
    """Evaluates expressions with given functions and fields."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._functions = functions
        #: The fields of the current event.
        self._fields: Mapping[str, Any] = {}

    def truth(self, expression: Expression, fields: Mapping[str, Any] | None = None) -> bool:
        """Return whether the condition holds; unknown values and type clashes mean that it does not."""
        self._fields = fields or {}
        return self.within(expression)

    def within(self, expression: Expression) -> bool:
        """Return whether a condition to which the current one refers holds for the same fields."""
        return bool(self._value_or_false(expression.tree, self._fields))

    def value(self, expression: Expression, fields: Mapping[str, Any] | None = None) -> Any:
        """Return the expression's value, or None if a value that it needs is unknown."""
        try:
            return self._value(expression.tree, fields or {})
        except _NO_VALUE:
            return None

    def _value(self, node: ast.expr, fields: Mapping[str, Any]) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return _CONSTANTS[node.id]
        if isinstance(node, ast.Attribute):
            return fields.get(node.attr)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            function = self._functions.get(node.func.id)
            if function is None:
                raise Missing(node.func.id)
            return function(*[self._value(argument, fields) for argument in node.args])
        if isinstance(node, ast.BoolOp):
            return self._boolean(node, fields)
        if isinstance(node, ast.UnaryOp):
            operand = self._value_or_false(node.operand, fields) if isinstance(node.op, ast.Not) else None
            if isinstance(node.op, ast.Not):
                return not operand
            number = self._value(node.operand, fields)
            return -number if isinstance(node.op, ast.USub) else +number
        if isinstance(node, ast.BinOp):
            left, right = self._value(node.left, fields), self._value(node.right, fields)
            if not (_is_number(left) and _is_number(right)):
                # "%" would format a text, and a list times a number would fill the memory.
                raise TypeError("arithmetic is for numbers")
            return _BINARY[type(node.op)](left, right)
        if isinstance(node, ast.Compare):
            return self._comparison(node, fields)
        if isinstance(node, ast.IfExp):
            return self._value(node.body if self._value_or_false(node.test, fields) else node.orelse, fields)
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._value(item, fields) for item in node.elts]
        raise Missing(type(node).__name__)

    def _value_or_false(self, node: ast.expr, fields: Mapping[str, Any]) -> Any:
        try:
            return self._value(node, fields)
        except _NO_VALUE:
            return False

    def _boolean(self, node: ast.BoolOp, fields: Mapping[str, Any]) -> Any:
        wanted = isinstance(node.op, ast.Or)
        result: Any = not wanted
        for operand in node.values:
            result = self._value_or_false(operand, fields)
            if bool(result) is wanted:
                return result
        return result

    def _comparison(self, node: ast.Compare, fields: Mapping[str, Any]) -> bool:
        left = self._value(node.left, fields)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self._value(right_node, fields)
            if left is None and not isinstance(op, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)):
                raise Missing("unknown value")
            compare = _COMPARE.get(type(op))
            if compare is None:
                raise Missing(type(op).__name__)
            if not compare(left, right):
                return False
            left = right
        return True
