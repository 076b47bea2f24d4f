"""Reading the files of the knowledge: trees of nodes kept in a cache, typed fields, and bounds on versions."""

from __future__ import annotations

import contextlib
import hashlib
import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any

from nccl_triage import resources
from nccl_triage.engine import cache, nodes
from nccl_triage.engine.nodes import Node
from nccl_triage.engine.schema import LANGUAGES
from nccl_triage.errors import RuleError
from nccl_triage.knowledge.entries import GRAMMARS, LEVELS, Bound, Grammar, Text, Trap
from nccl_triage.lazy_regex import lazily


def _texts(folder: str) -> list[tuple[str, str]]:
    """Return (display path, text) of the YAML files of one folder below ``rules/``, in a fixed order."""
    entry = resources.rules_dir() / folder
    found: list[tuple[str, str]] = []
    for file in sorted(entry.iterdir(), key=lambda e: e.name) if entry.is_dir() else ():
        if file.name.endswith((".yaml", ".yml")):
            path = f"rules/{folder}/{file.name}"
            try:
                found.append((path, file.read_text(encoding="utf-8")))
            except (OSError, UnicodeDecodeError) as error:
                raise RuleError("cannot be read: {error}", where=path, error=error) from None
    return found


def packed(folder: str, use_cache: bool = True) -> list[tuple[str, Any]]:
    """Return (path, packed tree) of the files of one folder below ``rules/``: see ``nodes.packed``.

    Parsing YAML costs many times what reading it back does. ``use_cache`` is false when what the cache held was damaged.
    """
    files = _texts(folder)
    entry = cache.name(f"knowledge_{folder}", _digest(files))
    known = cache.read_table(entry) if use_cache else None
    if known is not None and isinstance(known.get("files"), list) and len(known["files"]) == len(files):
        return [(path, tree) for tree, (path, _) in zip(known["files"], files, strict=True)]
    found = [(path, nodes.packed(nodes.parse(text, path))) for path, text in files]
    cache.write_table(entry, {"files": [tree for _, tree in found]})
    return found


def digest(folder: str) -> str:
    """Return a hash of the files of one folder below ``rules/``."""
    return _digest(_texts(folder))


def _digest(files: Iterable[tuple[str, str]]) -> str:
    return hashlib.sha256("\0".join(text for _, text in files).encode()).hexdigest()


def roots(folder: str) -> list[Node]:
    """Return the parsed files of one folder below ``rules/``."""
    with contextlib.suppress(ValueError):
        return [nodes.unpacked(tree, path) for path, tree in packed(folder)]
    return [nodes.unpacked(tree, path) for path, tree in packed(folder, use_cache=False)]


_OPERATORS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "==": operator.eq}
_BOUND = lazily(r"^(?P<program>[a-z][\w-]*)\s*(?P<operator>>=|<=|==|>|<)\s*(?P<version>\d+(?:\.\d+)*)$")


def version_key(version: str) -> tuple[int, ...]:
    """Return a version as four numbers (``v2.21.5+cuda12.4`` -> (2, 21, 5, 0))."""
    numbers = [int(part) for part in re.findall(r"\d{1,9}", version.split("+")[0])[:4]]
    return tuple(numbers + [0] * (4 - len(numbers)))


def version_bound(text: str) -> Bound | None:
    """Return ``nccl >= 2.27`` as a bound, or None when it is none."""
    match = _BOUND.match(text.strip())
    return Bound(match["program"], match["operator"], match["version"]) if match else None


def holds(bounds: Iterable[Bound], versions: Mapping[str, str]) -> bool:
    """Tell whether all bounds hold; a bound on a program whose version is unknown does not."""
    return all(
        item.program in versions
        and _OPERATORS[item.operator](version_key(versions[item.program]), version_key(item.version))
        for item in bounds
    )


def contradicts(bounds: Iterable[Bound], versions: Mapping[str, str]) -> bool:
    """Tell whether a known version breaks one of the bounds."""
    return any(item.program in versions and not holds((item,), versions) for item in bounds)


Part = dict[str, Node]


def bilingual(node: Node) -> Text:
    """Return a text in both languages."""
    parts = node.keys(LANGUAGES)
    return {language: parts[language].text() for language in LANGUAGES}


def maybe_bilingual(part: Part, key: str) -> Text | None:
    """Return a text in both languages, or None when the key is absent."""
    return bilingual(part[key]) if key in part else None


def text(part: Part, key: str) -> str | None:
    """Return a text, or None when the key is absent."""
    return part[key].text() if key in part else None


def texts(part: Part, key: str) -> tuple[str, ...]:
    """Return a list of texts, empty when the key is absent."""
    return tuple(part[key].texts()) if key in part else ()


def mapping(part: Part, key: str) -> dict[str, str]:
    """Return a mapping of texts, empty when the key is absent."""
    return {name: node.text() for name, node in part[key].mapping().items()} if key in part else {}


def number(part: Part, key: str) -> float | None:
    """Return a number, or None when the key is absent."""
    if key not in part:
        return None
    try:
        return float(part[key].text())
    except ValueError:
        raise part[key].fail("expected a number, found {text!r}", text=part[key].text()) from None


def bounds(part: Part, key: str) -> tuple[Bound, ...]:
    """Return conditions on versions, e.g. ``[nccl >= 2.27]``."""
    found: list[Bound] = []
    for item in part[key].items() if key in part else ():
        bound = version_bound(item.text())
        if bound is None:
            raise item.fail("{text!r} is not a version condition", "write it as: nccl >= 2.27", text=item.text())
        found.append(bound)
    return tuple(found)


def grammar(node: Node) -> Grammar:
    """Return which values are understood: the name of a grammar alone, or a mapping with its limits."""
    if not isinstance(node.value, dict):
        return Grammar(node.choice(GRAMMARS))
    part = node.keys(("kind",), ("of", "least", "most", "also", "unit"))
    kind = part["kind"].choice(GRAMMARS)
    if kind in ("one-of", "list-of") and "of" not in part:
        raise node.fail("values of kind {kind} need 'of'", kind=kind)
    return Grammar(
        kind,
        of=texts(part, "of"),
        least=number(part, "least"),
        most=number(part, "most"),
        also=texts(part, "also"),
        unit=text(part, "unit"),
    )


def trap(node: Node) -> Trap:
    """Return a value that does not do what people expect."""
    part = node.keys(("says",), ("level", "matches", "below", "above", "missing", "versions"))
    if not part.keys() & {"matches", "below", "above", "missing"}:
        raise node.fail("a trap needs 'matches', 'below', 'above' or 'missing'")
    try:
        pattern = re.compile(part["matches"].text()) if "matches" in part else None
    except re.error as error:
        raise part["matches"].fail("not a valid regular expression: {error}", error=error) from None
    level = part["level"].choice(LEVELS) if "level" in part else "warn"
    return Trap(
        says=bilingual(part["says"]),
        level="note" if level == "note" else "warn",
        matches=pattern,
        below=number(part, "below"),
        above=number(part, "above"),
        missing=text(part, "missing"),
        bounds=bounds(part, "versions"),
    )
