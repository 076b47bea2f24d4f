"""Loads rule files into a RuleSet; errors name file and line."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_triage import files, resources
from nccl_triage.engine import nodes, rule_cache
from nccl_triage.engine.nodes import Node
from nccl_triage.engine.pattern import Pattern, SearchBudget
from nccl_triage.engine.read_causes import read_cause, read_missing_evidence, share_consequences
from nccl_triage.engine.read_layouts import read_layouts
from nccl_triage.engine.read_metric_formats import check_names, read_metric_formats
from nccl_triage.engine.read_prefixes import read_prefixes
from nccl_triage.engine.read_signatures import read_activity, read_signature
from nccl_triage.engine.rule_cache import AnchorTable
from nccl_triage.engine.schema import ProducerRow, RuleSet, Support
from nccl_triage.engine.supports import attach, read_producer, read_supports
from nccl_triage.engine.terms import read_premise, read_words, refuse_cycles
from nccl_triage.errors import InputError, RuleError

if TYPE_CHECKING:
    from importlib.abc import Traversable

#: The folders of rules that a diagnosis reads. A user's folder of rules may have the same.
KINDS = (
    *("signatures", "causes", "producers", "terms", "missing_evidence", "series", "stacks"),
    *("prefixes", "layouts"),
)

#: Limits of a user's folder of rules: files and folders, and bytes.
MAX_FILES, MAX_BYTES = 5_000, 64 << 20


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield (display path, text) of every YAML file below a folder, in a fixed order."""
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        name = f"{prefix}/{entry.name}"
        if entry.is_dir():
            yield from _files(entry, name)
        elif entry.name.endswith((".yaml", ".yml")):
            try:
                yield name, entry.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise RuleError("cannot be read: {error}", where=name, error=error) from None


def _read_texts(folder: Traversable, label: str, user: bool) -> list[tuple[str, str, str]]:
    """Return (kind, path, text) of every rule file in a folder of rules."""
    if user and isinstance(folder, Path):
        return texts_of(folder)
    return [
        (kind, path, text)
        for kind in KINDS
        if (folder / kind).is_dir()
        for path, text in _files(folder / kind, f"{label}/{kind}")
    ]


def texts_of(folder: Path) -> list[tuple[str, str, str]]:
    """Return (kind, path, text) of every rule file in a user's folder; raises RuleError.

    The size is limited. What is not a regular file is refused, also behind a link.
    """
    label = f"./{folder}" if folder.parts[:1] == ("rules",) else str(folder)
    found: list[tuple[str, str, str]] = []
    room = MAX_BYTES
    for path in paths_of(folder):
        inside = path.relative_to(folder)
        found.append((inside.parts[0], f"{label}/{inside.as_posix()}", _text(path)))
        room -= len(found[-1][2])
        if room < 0:
            raise RuleError("contains more files or text than a rules folder may have", where=str(folder))
    return found


def paths_of(folder: Path) -> list[Path]:
    """Return the rule files of a user's folder in a fixed order, each folder once; raises RuleError if there are too many."""
    found: list[Path] = []
    visited: set[tuple[int, int]] = set()
    for kind in KINDS:
        waiting = [folder / kind]
        while waiting:
            place = waiting.pop()
            if not place.is_dir():
                continue
            state = place.stat()
            if (state.st_dev, state.st_ino) in visited:
                continue
            visited.add((state.st_dev, state.st_ino))
            entries = sorted(place.iterdir(), key=lambda entry: entry.name)
            waiting += [entry for entry in reversed(entries) if entry.is_dir()]
            found += [entry for entry in entries if entry.suffix in (".yaml", ".yml") and not entry.is_dir()]
            if max(len(visited), len(found)) > MAX_FILES:
                raise RuleError("contains more files or text than a rules folder may have", where=str(folder))
    return found


def _text(path: Path) -> str:
    try:
        return files.read_regular(path, nodes.MAX_FILE).decode("utf-8")
    except files.TooLarge:
        raise RuleError("the file is larger than {limit} MiB", where=str(path), limit=nodes.MAX_FILE >> 20) from None
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or error) if isinstance(error, OSError) else error
        raise RuleError("cannot be read: {error}", where=str(path), error=why) from None


def _add(part: dict[str, Any], item: Any) -> None:
    """Add a rule; raises RuleError if its id is taken."""
    other = part.get(item.id)
    if other is not None:
        raise RuleError("{id!r} already exists ({place})", where=item.where, id=item.id, place=other.where)
    part[item.id] = item


class _FolderReader:
    """Adds the files of a folder of rules to a RuleSet; their errors are raised together at the end."""

    def __init__(self, into: RuleSet, user: bool, table: AnchorTable) -> None:
        self._into, self._user, self._table = into, user, table
        self._supports: list[Support] = []
        self._produced: list[ProducerRow] = []
        #: Files of prefixes and layouts, which share parts of their patterns.
        self._prefix_files: list[Node] = []
        self._layout_files: list[Node] = []
        self._errors = nodes.ErrorCollector()

    def file(self, kind: str, path: str, text: str) -> None:
        """Add the rules of a file."""
        with self._errors.collecting():
            root = nodes.parse(text, path)
            getattr(self, f"_{kind}")(root, path)

    def finish(self) -> None:
        """Raise the errors, if there are any; else add the evidence of messages and producers to the causes."""
        read_prefixes(self._prefix_files, self._user, self._into.prefixes, self._errors)
        read_layouts(self._layout_files, self._user, self._into.layouts, self._errors)
        self._errors.raise_collected()
        attach(self._into.causes, self._supports, self._produced)
        share_consequences(self._into.causes)
        refuse_cycles(self._into.premises)

    def _each(self, root: Node, key: str, make: Callable[[Node], Any], part: dict[str, Any]) -> None:
        for item in root.mapping()[key].items():
            with self._errors.collecting():
                _add(part, make(item))

    def _causes(self, root: Node, path: str) -> None:
        cause = read_cause(root, self._user)
        if Path(path).stem != cause.id:
            raise RuleError("the file of cause {id!r} must be named {id}.yaml", where=cause.where, id=cause.id)
        _add(self._into.causes, cause)

    def _missing_evidence(self, root: Node, path: str) -> None:
        root.keys(("missing_evidence",))
        self._each(
            root, "missing_evidence", lambda item: read_missing_evidence(item, self._user), self._into.missing_evidence
        )

    def _stacks(self, root: Node, path: str) -> None:
        root.keys(("activities",))
        self._each(root, "activities", lambda item: read_activity(item, self._user), self._into.activities)

    def _producers(self, root: Node, path: str) -> None:
        for item in root.keys(("producers",))["producers"].items():
            with self._errors.collecting():
                self._produced += read_producer(item, self._user)

    def _terms(self, root: Node, path: str) -> None:
        part = root.keys((), ("premises", "words"))
        if "premises" in part:
            self._each(root, "premises", read_premise, self._into.premises)
        if "words" in part:
            self._each(root, "words", read_words, self._into.words)

    def _series(self, root: Node, path: str) -> None:
        read_metric_formats(root, self._user, self._into.series)

    def _prefixes(self, root: Node, path: str) -> None:
        self._prefix_files.append(root)

    def _layouts(self, root: Node, path: str) -> None:
        self._layout_files.append(root)

    def _signatures(self, root: Node, path: str) -> None:
        part = root.keys(("program", "signatures"), ("title",))
        program = part["program"].text()
        for item in part["signatures"].items():
            with self._errors.collecting():
                found = read_signature(item, program, self._user, self._table)
                _add(self._into.signatures, found)
                self._supports += read_supports(item, found.id, self._user)


def _read_folder(folder: Traversable, label: str, user: bool, into: RuleSet) -> dict[str, str]:
    """Add a folder of rules to a set; returns its files with their texts, raises all their errors."""
    found = _read_texts(folder, label, user)
    texts = [text for _, _, text in found]
    table = AnchorTable(_digest(texts))
    reading = _FolderReader(into, user, table)
    for kind, path, text in found:
        reading.file(kind, path, text)
    reading.finish()
    table.save()
    return {path: text for _, path, text in found}


def _digest(texts: list[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _shipped() -> RuleSet:
    """Return the shipped rules, from the cache if possible."""
    folder = resources.rules_dir()
    entry = rule_cache.name(folder)
    known = rule_cache.read(entry)
    if known is not None:
        return known
    rules = RuleSet({}, {}, "")
    rules = replace(rules, digest=_digest(list(_read_folder(folder, "rules", False, rules).values())))
    check_names(rules.series)
    rule_cache.write(entry, rules)
    return rules


def load(user_folders: tuple[Path, ...] = (), builtin: bool = True) -> RuleSet:
    """Load the shipped rules and those of the user's folders; raises RuleError if an id is defined twice."""
    rules = _shipped() if builtin else RuleSet({}, {}, "")
    texts = [rules.digest] if builtin else []
    foreign: list[str] = []
    if user_folders:
        Pattern.budget = SearchBudget()
    # Paths of shipped rules begin with "rules/"; a user's folder of that name gets "./" in front.
    for folder in user_folders:
        if not folder.is_dir():
            raise InputError(
                "{folder} is not a rules folder", remedy="give a folder with signatures/ or causes/", folder=folder
            )
        found = _read_folder(folder, "", True, rules)
        if not found:
            raise InputError(
                "{folder} contains no rules", remedy="put YAML files below signatures/ or causes/ in it", folder=folder
            )
        texts += found.values()
        foreign += found
    if not user_folders and builtin:
        return rules
    check_names(rules.series)
    return replace(rules, digest=_digest(texts), foreign=frozenset(foreign))


def _text_of_rule_file(path: str) -> str:
    """Return the text of a rule file, shipped or a user's, by the path that its rules name."""
    if path.startswith("rules/"):
        entry = resources.rules_dir()
        for part in path.split("/")[1:]:
            entry = entry / part
        return entry.read_text(encoding="utf-8")
    return Path(path).read_text(encoding="utf-8")


def definition(where: str, rule: str) -> str:
    """Return the lines that define a rule, given its ``path:line``: the whole file for a cause, one entry otherwise."""
    path, _, number = where.rpartition(":")
    lines = _text_of_rule_file(path).splitlines()
    if path.endswith(f"{rule}.yaml"):
        return "\n".join(lines)
    first = int(number) - 1
    last = first + 1
    while last < len(lines) and not lines[last].lstrip().startswith("- id:"):
        last += 1
    return "\n".join(lines[first:last]).rstrip()
