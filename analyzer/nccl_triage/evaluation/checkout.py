"""What a shipped cause needs beside its file, in a checkout: a labelled case, its page, an incident, and editors' schemas.

An installed distribution has no corpus and no pages, and nothing is checked there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nccl_triage import resources
from nccl_triage.checks.fields import nearest
from nccl_triage.checks.problem import RuleProblem
from nccl_triage.engine.schema import Cause, RuleSet
from nccl_triage.evaluation import cases
from nccl_triage.lazy_regex import lazily

#: The sets of labelled cases, and the labels that are no cause.
SETS, NO_CAUSE = ("recorded", "written"), ("healthy", "unknown")
#: The case of an incident, as docs/incident_pages.py lists it.
_INCIDENT = lazily(r'"((?:recorded|written)/[^"\s]+)"')
#: Schemas whose folder of rules has another name.
_FOLDERS = {"cause": "causes", "variable": "variables"}


def find() -> Path | None:
    """Return the checkout that the shipped rules are in, None if they are installed."""
    rules = resources.rules_dir()
    root = rules.parent if isinstance(rules, Path) else None
    return root if root is not None and all((root / "corpus" / name).is_dir() for name in SETS) else None


def check(rules: RuleSet, root: Path | None) -> list[RuleProblem]:
    """Return what the shipped causes lack in a checkout; nothing without one."""
    if root is None:
        return []
    known = {f"{name}/{case.id}": case for name in SETS for case in cases.read(root / "corpus" / name)}
    labels = {case.cause for case in known.values()}
    found = list(_wrong_labels(rules, known))
    page = root / "docs" / "incident_pages.py"
    incidents = [known[name] for name in _INCIDENT.findall(page.read_text(encoding="utf-8")) if name in known]
    told = {label for case in incidents for label in case.acceptable}
    index = (root / "docs" / "causes" / "README.md").read_text(encoding="utf-8")
    for cause in rules.causes.values():
        if cause.where.rpartition(":")[0] in rules.foreign:
            continue
        if cause.id not in labels:
            message = (
                "no case of corpus/recorded or corpus/written is labelled with it: add a log and a row of cases.jsonl "
                "(corpus/README.md)"
            )
            found.append(RuleProblem("error", cause.where, cause.id, message))
        if cause.id not in told:
            message = "docs/incident_pages.py lists no case of it: add one to INCIDENTS, then run `make docs`"
            found.append(RuleProblem("error", cause.where, cause.id, message))
        found += _page(cause, root, index)
    return [*found, *_schemas(root)]


def _wrong_labels(rules: RuleSet, known: dict[str, cases.LabelledCase]) -> Iterator[RuleProblem]:
    """Yield the labels without a cause: ids are a contract, and one that is renamed or lost is missed here."""
    for name, case in known.items():
        for label in case.acceptable:
            if label not in rules.causes and label not in NO_CAUSE:
                message = f"is labelled with the unknown cause {label!r}{nearest(label, rules.causes)}"
                yield RuleProblem("error", f"corpus/{name.partition('/')[0]}/cases.jsonl", case.id, message)


def _page(cause: Cause, root: Path, index: str) -> Iterator[RuleProblem]:
    path = root / "docs" / "causes" / f"{cause.id}.md"
    if not path.is_file():
        yield RuleProblem("error", cause.where, cause.id, f"docs/causes/{path.name} is missing: run `make docs`")
    elif f"](../{cause.id}.md)" not in index and f"]({cause.id}.md)" not in index:
        yield RuleProblem("error", cause.where, cause.id, "docs/causes/README.md does not list it: run `make docs`")
    elif cause.title["zh"] not in path.read_text(encoding="utf-8"):
        message = f"docs/causes/{path.name} has another title: run `make docs`"
        yield RuleProblem("error", cause.place("title"), cause.id, message)


def _schemas(root: Path) -> Iterator[RuleProblem]:
    """Yield the files of rules that the schemas for editors refuse, although they were read; needs jsonschema (extra dev)."""
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        return
    import orjson
    import yaml

    for path in sorted((root / "rules" / "schema").glob("*.schema.json")):
        name = path.name.partition(".")[0]
        schema = orjson.loads(path.read_bytes())
        Draft202012Validator.check_schema(schema)
        validator = Draft202012Validator(schema)
        for file in sorted((root / "rules" / _FOLDERS.get(name, name)).rglob("*.yaml")):
            tree = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
            for error in validator.iter_errors(_plain(tree)):
                place = f"{file.relative_to(root)}:{_line(tree, list(error.absolute_path))}"
                message = f"rules/schema/{path.name} refuses it: {error.message[:200]}"
                yield RuleProblem("error", place, file.stem, message)


#: What a plain scalar of YAML 1.2 is, by its tag; words that only YAML 1.1 takes for true or false stay texts.
_PLAIN: dict[str, Callable[[str], Any]] = {
    "tag:yaml.org,2002:int": lambda text: int(text, 0),
    "tag:yaml.org,2002:float": float,
    "tag:yaml.org,2002:null": lambda _: None,
    "tag:yaml.org,2002:bool": lambda text: text == "true" if text in ("true", "false") else text,
}


def _plain(node: Any) -> Any:
    """Return a node of YAML as editors see it."""
    if node.id == "mapping":
        return {key.value: _plain(value) for key, value in node.value}
    if node.id == "sequence":
        return [_plain(item) for item in node.value]
    return _PLAIN.get(node.tag, str)(node.value)


def _line(node: Any, path: list[str | int]) -> int:
    for key in path:
        if isinstance(key, int):
            node = node.value[key]
        else:
            node = next((value for name, value in node.value if name.value == key), node)
    return int(node.start_mark.line) + 1
