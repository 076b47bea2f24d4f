"""YAML values with their position, and typed access to them whose errors name file and line.

Only scalars, lists and mappings are built (``yaml.compose`` with the safe loader), so nothing in a rule file can run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from nccl_triage.errors import RuleError, RuleErrors

if TYPE_CHECKING:
    import yaml

T = TypeVar("T")
#: Limits of the size of a rule file and of its number of values: with aliases a few lines stand for billions of values.
MAX_FILE, MAX_VALUES = 4 << 20, 200_000


class Node(NamedTuple):
    """A YAML value with the file and line where it stands."""

    value: Any
    path: str
    line: int

    @property
    def where(self) -> str:
        """``path:line`` of the value."""
        return f"{self.path}:{self.line}"

    def fail(self, message: str, remedy: str | None = None, **values: Any) -> RuleError:
        """Return (do not raise) an error at this position; the texts are templates of ``messages``."""
        return RuleError(message, where=self.where, remedy=remedy, **values)

    def mapping(self) -> dict[str, Node]:
        """Return the value as a mapping of nodes."""
        if not isinstance(self.value, dict):
            raise self.fail("expected a mapping, found {kind}", kind=_kind(self.value))
        return self.value

    def items(self) -> list[Node]:
        """Return the value as a list of nodes; a single value counts as a list of one."""
        if isinstance(self.value, list):
            return self.value
        return [self]

    def text(self) -> str:
        """Return the value as text."""
        if isinstance(self.value, (dict, list)) or self.value is None:
            raise self.fail("expected text, found {kind}", kind=_kind(self.value))
        return str(self.value)

    def texts(self) -> list[str]:
        """Return the value as a list of texts; a single text counts as a list of one."""
        return [item.text() for item in self.items()]

    def integer(self) -> int:
        """Return the value as a positive whole number."""
        text = self.text()
        if not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) < 1:
            raise self.fail("expected a positive whole number, found {text!r}", text=text)
        return int(text)

    def flag(self) -> bool:
        """Return the value as true or false."""
        if self.value not in ("true", "false"):
            raise self.fail("expected true or false, found {value!r}", value=self.value)
        return bool(self.value == "true")

    def choice(self, allowed: Iterable[str]) -> str:
        """Return the value, which must be one of the allowed words."""
        text = self.text()
        names = list(allowed)
        if text not in names:
            raise self.fail("{text!r} is not one of {names}", text=text, names=", ".join(names))
        return text

    def keys(self, required: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Node]:
        """Return the mapping after checking that it has all required keys and no unknown ones."""
        found = self.mapping()
        needed, extra = list(required), list(optional)
        for name, node in found.items():
            if name not in needed and name not in extra:
                raise node.fail(
                    "unknown key {name!r}", "known keys: {names}", name=name, names=", ".join([*needed, *extra])
                )
        missing = [name for name in needed if name not in found]
        if len(missing) == 1:
            raise self.fail("the key {name!r} is missing", name=missing[0])
        if missing:
            raise self.fail("the keys {names} are missing", names=", ".join(map(repr, missing)))
        return found


class ErrorCollector:
    """Collects the errors of the parts of a file, to raise all of them together."""

    def __init__(self) -> None:
        self._errors: list[RuleError] = []

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect an error that is raised in the block, and go on after it."""
        try:
            yield
        except RuleError as error:
            self._errors.append(error)

    def each(self, items: Iterable[Node], make: Callable[[Node], T]) -> tuple[T, ...]:
        """Return what is made of the valid items, and collect the errors of the others."""
        made: list[T] = []
        for item in items:
            with self.collecting():
                made.append(make(item))
        return tuple(made)

    def raise_collected(self) -> None:
        """Raise the collected errors, if there are any."""
        if self._errors:
            raise RuleErrors(self._errors) if len(self._errors) > 1 else self._errors[0]


def _kind(value: object) -> dict[str, str]:
    if value is None:
        return {"en": "nothing", "zh": "空值"}
    if isinstance(value, dict):
        return {"en": "a mapping", "zh": "映射"}
    return {"en": "a list", "zh": "列表"} if isinstance(value, list) else {"en": "text", "zh": "文本"}


def _build(node: yaml.Node, path: str, left: Iterator[int], depth: int = 0) -> Node:
    """Convert nodes of YAML; ``left`` has as many items as a file may have values."""
    import yaml

    line = node.start_mark.line + 1
    if depth > 24:
        raise RuleError("nested too deeply", where=f"{path}:{line}")
    if next(left, None) is None:
        raise RuleError("the file holds too many values", where=f"{path}:{line}")
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Node] = {}
        for key, value in node.value:
            name = str(key.value)
            if name in found:
                raise RuleError(
                    "the key {name!r} is listed twice", where=f"{path}:{key.start_mark.line + 1}", name=name
                )
            found[name] = _build(value, path, left, depth + 1)
        return Node(found, path, line)
    if isinstance(node, yaml.SequenceNode):
        return Node([_build(item, path, left, depth + 1) for item in node.value], path, line)
    if node.tag == "tag:yaml.org,2002:null":
        return Node(None, path, line)
    return Node(str(node.value), path, line)


def parse(text: str, path: str) -> Node:
    """Parse one YAML document into nodes; every scalar stays the text that is written there."""
    if len(text) > MAX_FILE:
        raise RuleError("the file is larger than {limit} MiB", where=path, limit=MAX_FILE >> 20)
    import yaml  # not needed if the parsed rules come from the cache

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else path
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise RuleError("not valid YAML: {problem}", where=where, problem=problem) from None
    if root is None:
        return Node({}, path, 1)
    return _build(root, path, iter(range(MAX_VALUES)))


def packed(node: Node) -> list[Any]:
    """Return a tree of nodes as plain lists, mappings and texts, from which ``unpacked`` restores it."""
    value = node.value
    if isinstance(value, dict):
        return [node.line, {name: packed(child) for name, child in value.items()}]
    if isinstance(value, list):
        return [node.line, [packed(child) for child in value]]
    return [node.line, value]


def unpacked(tree: Any, path: str) -> Node:
    """Return the nodes of a packed tree; raises ValueError if it is damaged."""
    if not (isinstance(tree, list) and len(tree) == 2 and isinstance(tree[0], int)):
        raise ValueError("damaged tree")
    line, value = tree
    if isinstance(value, dict):
        return Node({name: unpacked(child, path) for name, child in value.items()}, path, line)
    if isinstance(value, list):
        return Node([unpacked(child, path) for child in value], path, line)
    if value is not None and not isinstance(value, str):
        raise ValueError("damaged tree")
    return Node(value, path, line)
