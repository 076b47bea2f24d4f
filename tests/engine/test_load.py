"""Rule files that are wrong: one sentence with file and line."""

from __future__ import annotations

import ast
import os
import pickle
import shutil
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import resources
from nccl_triage.engine import cache, load, rule_cache
from nccl_triage.engine.expression import Expression
from nccl_triage.engine.pattern import Pattern
from nccl_triage.errors import InputError, RuleError

GOOD = """program: site
signatures:
  - id: site.down
    kind: node.lost
    role: root
    pattern: 'rack (?P<name>\\w+) lost power'
    meaning: A rack lost power.
    match: ['rack r12 lost power']
    not: ['rack r12 has power']
"""


def _write(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "rules" / "signatures" / "site"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "site.yaml").write_text(text)
    return tmp_path / "rules"


def test_a_good_file_loads(tmp_path: Path) -> None:
    rules = load.load((_write(tmp_path, GOOD),), builtin=False)
    assert rules.signatures["site.down"].anchors is not None
    assert rules.signatures["site.down"].pattern.user


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("role: root", "role: boss", 5, "not one of root"),
        ("kind: node.lost", "kind: node.gone", 4, "not one of"),
        ("    kind: node.lost\n", "", 3, "'kind' is missing"),
        ("    role: root\n", "", 3, "'role' is missing"),
        ("lost power'", "lost (power'", 6, "regular expression"),
        ("meaning:", "meening:", None, "meening"),
        ("'rack (?P<name>\\w+) lost power'", "'\\d+'", 6, "no literal"),
        ("site.down", "Site Down", 3, "is not an id"),
        ("    match:", "    role: root\n    match:", 8, "listed twice"),
        ("program: site", "program: [site", None, "not valid YAML"),
        ("site.down", "nccl.duplicate_gpu", 3, "already exists"),
    ],
)
def test_errors_point_at_the_line(tmp_path: Path, old: str, new: str, line: int | None, message: str) -> None:
    folder = _write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(RuleError) as caught:
        load.load((folder,))
    assert message in str(caught.value)
    if line is not None:
        assert caught.value.where is not None
        assert caught.value.where.endswith(f"site.yaml:{line}")


def test_yaml_cannot_run_code(tmp_path: Path) -> None:
    folder = _write(
        tmp_path, GOOD.replace("meaning: A rack lost power.", "meaning: !!python/object/apply:os.system ['touch x']")
    )
    with pytest.raises(RuleError):
        load.load((folder,), builtin=False)
    assert not (tmp_path / "x").exists()


def test_folders_without_rules_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        load.load((tmp_path,))
    with pytest.raises(InputError):
        load.load((tmp_path / "none",))


def test_a_runaway_user_pattern_is_stopped(tmp_path: Path) -> None:
    import time

    from nccl_triage.engine import match

    rules = load.load(
        (_write(tmp_path, GOOD.replace("'rack (?P<name>\\w+) lost power'", "'power (a|a)*$'")),), builtin=False
    )
    started = time.monotonic()
    assert match.search(rules.signatures["site.down"], "power " + "a" * 5000 + "b") is None
    assert time.monotonic() - started < 5


def test_rules_survive_the_cache_and_a_damaged_cache_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_TRIAGE_CACHE", str(tmp_path))
    first = load.load()
    (entry,) = tmp_path.glob("rules-*")
    again = load.load()
    assert again is not first
    assert again.digest == first.digest
    assert shown(again) == shown(first)
    assert [list(part) for part in (again.signatures, again.causes)] == [list(first.signatures), list(first.causes)]
    good = cache.read(entry.name) or b""
    for damage in (b"", b"{", good[:1000], good[:-1], good.replace(b"Signature", b"SIgnature"), pickle.dumps([1])):
        cache.write(entry.name, damage)
        assert len(load.load().signatures) == len(first.signatures)
        assert rule_cache.read(entry.name) is not None


def shown(item: Any) -> Any:
    """Return an object of the rules as plain data."""
    if isinstance(item, Expression):
        return item.source, item.where, ast.dump(item.tree)
    if isinstance(item, Pattern):
        return item.source, item.user
    if isinstance(item, frozenset):
        return sorted(item)
    if isinstance(item, (list, tuple)):
        return [shown(part) for part in item]
    if isinstance(item, dict):
        return {name: shown(part) for name, part in item.items()}
    if is_dataclass(item):
        return {field.name: shown(getattr(item, field.name)) for field in fields(item)}
    assert item is None or isinstance(item, (str, int, float, bool))
    return repr(item)  # nan is not equal to itself


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, (str(Path(os.environ["NCCL_TRIAGE_CACHE"]) / "ran"),)


def test_nothing_in_the_cache_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_TRIAGE_CACHE", str(tmp_path))
    count = len(load.load().signatures)
    (entry,) = tmp_path.glob("rules-*")
    for evil in (Evil(), {"x": [Evil()]}):
        cache.write(entry.name, pickle.dumps(evil))
        assert len(load.load().signatures) == count
        assert not (tmp_path / "ran").exists()


def test_a_changed_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_TRIAGE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "rules"
    shutil.copytree(str(resources.rules_dir()), folder)
    monkeypatch.setattr(resources, "rules_dir", lambda: folder)
    first = load.load()
    path = folder / "signatures" / "nccl" / "sockets.yaml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("nccl.no_iface_same_subnet", "nccl.renamed_subnet"), "utf-8"
    )
    assert set(load.load().signatures) - set(first.signatures) == {"nccl.renamed_subnet"}


TERMS = """premises:
  - id: one
    meaning: The first.
    when: premise('two')
  - id: two
    meaning: The second.
    when: premise('three') or has('step')
  - id: three
    meaning: The third.
    when: not premise('one')
"""


def test_a_premise_that_asks_for_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "terms").mkdir()
    (tmp_path / "terms" / "own.yaml").write_text(TERMS, encoding="utf-8")
    with pytest.raises(RuleError, match="'one' refers to itself"):
        load.load((tmp_path,))
    (tmp_path / "terms" / "own.yaml").write_text(TERMS.replace("not premise('one')", "has('step')"), encoding="utf-8")
    assert {"one", "two", "three"} <= set(load.load((tmp_path,)).premises)
