"""The rules of the story as data: ordered tables of named rules, each with a sentence, thresholds and samples.

A table answers one question about a line, a run or an input ("Does this failure count?"). Its first rule that holds
decides. What a rule compares, says and is proved by stands in ``rules/story``; its condition is code, registered under
the rule's name in ``story.decisions``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from nccl_triage import resources
from nccl_triage.engine import nodes, rule_cache
from nccl_triage.engine.fields import bilingual, flag, identifier, text_list, text_mapping
from nccl_triage.engine.nodes import Node
from nccl_triage.engine.schema import PLACEHOLDER, StoryRule, StorySample, StoryTable, Text, Threshold
from nccl_triage.errors import RuleError
from nccl_triage.observations.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.abc import Traversable

#: The folder of these rules.
FOLDER = "story"
#: Name of the only file of a sample that has one.
SAMPLE = "sample"


def read_tables(root: Node) -> dict[str, StoryTable]:
    """Return the tables of a file by name."""
    found: dict[str, StoryTable] = {}
    for node in root.keys(("tables",))["tables"].items():
        table = _table(node)
        if table.id in found:
            raise node.fail("the table {id!r} is listed twice", id=table.id)
        found[table.id] = table
    return found


def _table(node: Node) -> StoryTable:
    part = node.keys(("id", "question", "answers", "rules"), ("thresholds",))
    answers = {name: bilingual(text, False) for name, text in part["answers"].mapping().items()}
    thresholds = {
        name: _threshold(item) for name, item in (part["thresholds"].mapping() if "thresholds" in part else {}).items()
    }
    rules: dict[str, StoryRule] = {}
    for item in part["rules"].items():
        rule = _rule(item, part["id"].text(), answers, thresholds)
        if rule.id in rules:
            raise item.fail("the rule {id!r} is listed twice", id=rule.id)
        rules[rule.id] = rule
    used = {name for rule in rules.values() for name in rule.thresholds}
    for name in sorted(thresholds.keys() - used):
        raise part["thresholds"].fail("no rule lists the threshold {name!r}", name=name)
    for name in sorted(answers.keys() - {rule.answer for rule in rules.values()}):
        raise part["answers"].fail("no rule gives the answer {name!r}", name=name)
    return StoryTable(
        identifier(part["id"]),
        bilingual(part["question"], False),
        answers,
        thresholds,
        tuple(rules.values()),
        node.where,
    )


def _threshold(node: Node) -> Threshold:
    part = node.keys(("value", "unit", "meaning"))
    try:
        value = float(part["value"].text())
    except ValueError:
        raise part["value"].fail("expected a number, found {text!r}", text=part["value"].text()) from None
    return Threshold(value, part["unit"].text(), part["meaning"].text())


def _rule(node: Node, table: str, answers: Mapping[str, Text], thresholds: Mapping[str, Threshold]) -> StoryRule:
    part = node.keys(
        ("id", "answer", "says", "otherwise", "samples", "counter_samples"),
        ("kinds", "thresholds", "numbers", "overrules", "uncertain"),
    )
    kinds, named, numbers = text_list(part, "kinds"), text_list(part, "thresholds"), text_list(part, "numbers")
    for kind in kinds:
        if kind not in KINDS:
            raise part["kinds"].fail("{kind!r} is not a kind of line", kind=kind)
    for name in named:
        if name not in thresholds:
            raise part["thresholds"].fail("the table has no threshold {name!r}", name=name)
    says, otherwise = bilingual(part["says"], False), bilingual(part["otherwise"], False)
    for key, text in (("says", says), ("otherwise", otherwise)):
        for words in text.values():
            for match in PLACEHOLDER.finditer(words):
                if match["kind"] or match["name"] not in (*named, *numbers):
                    raise part[key].fail(
                        "{placeholder} is neither a threshold nor a number of this rule", placeholder=match[0]
                    )
    return StoryRule(
        id=f"{table}.{identifier(part['id'])}",
        answer=part["answer"].choice(answers),
        says=says,
        otherwise=otherwise,
        where=node.where,
        kinds=kinds,
        thresholds=named,
        numbers=numbers,
        overrules=flag(part, "overrules"),
        uncertain=flag(part, "uncertain"),
        samples=tuple(_sample(item, table, False) for item in part["samples"].items()),
        counter_samples=tuple(_sample(item, table, True) for item in part["counter_samples"].items()),
    )


def _sample(node: Node, table: str, counter: bool) -> StorySample:
    part = node.keys(("log",), ("line", "in_part", "recalls", "votes", *(("instead",) if counter else ())))
    log = part["log"]
    files = {name: text.text() for name, text in log.mapping().items()} if isinstance(log.value, dict) else {}
    texts = files or {SAMPLE: log.text()}
    path, line = SAMPLE, None
    if "line" in part:
        path, _, number = part["line"].text().rpartition(":")
        path = path or next(iter(texts))
        if path not in texts or not number.isdigit() or not 1 <= int(number) <= len(texts[path].splitlines()):
            raise part["line"].fail("the sample has no line {line!r}", line=part["line"].text())
        line = int(number)
    instead = part["instead"].text() if "instead" in part else None
    return StorySample(
        tuple(texts.items()),
        path,
        line,
        f"{table}.{instead}" if instead else None,
        node.where,
        flag(part, "in_part"),
        tuple(text_mapping(part, "recalls").items()),
        flag(part, "votes"),
    )


def _files(folder: Traversable) -> list[tuple[str, str]]:
    """Return (display path, text) of every file, in a fixed order."""
    return [
        (f"rules/{FOLDER}/{entry.name}", entry.read_text(encoding="utf-8"))
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".yaml")
    ]


def read_folder(folder: Traversable) -> dict[str, StoryTable]:
    """Return the tables of a folder; raises all errors of its files together."""
    found: dict[str, StoryTable] = {}
    errors = nodes.ErrorCollector()
    for path, text in _files(folder):
        with errors.collecting():
            for name, table in read_tables(nodes.parse(text, path)).items():
                if name in found:
                    raise RuleError(
                        "{id!r} already exists ({place})", where=table.where, id=name, place=found[name].where
                    )
                found[name] = table
    errors.raise_collected()
    return found


@lru_cache(maxsize=1)
def tables() -> Mapping[str, StoryTable]:
    """Return the rules of the story. They are shipped with the package and the same for every set of rules."""
    folder = resources.rules_dir() / FOLDER
    entry = rule_cache.name(folder)
    known = rule_cache.read_story(entry)
    if known is not None:
        return known
    found = read_folder(folder)
    rule_cache.write_story(entry, found)
    return found
