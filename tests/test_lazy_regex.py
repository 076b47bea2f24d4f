"""Patterns that are compiled late are valid, and behave as compiled ones."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import nccl_triage
from nccl_triage import lazy_regex
from nccl_triage.engine import cache
from nccl_triage.lazy_regex import KeptCode, LazyPattern, lazily


def found(value: object) -> Iterator[LazyPattern]:
    if isinstance(value, LazyPattern):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from found(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from found(item)
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        for name in value.__dataclass_fields__:
            yield from found(getattr(value, name, None))


def test_every_pattern_of_every_module_compiles() -> None:
    checked = 0
    for module in pkgutil.walk_packages(nccl_triage.__path__, "nccl_triage."):
        if module.name.rpartition(".")[2] == "__main__":
            continue
        for value in vars(importlib.import_module(module.name)).values():
            for pattern in found(value):
                assert pattern.pattern
                checked += 1
    assert checked > 100


def test_it_is_the_pattern_after_the_first_use() -> None:
    lazy, plain = lazily(r"(?P<a>x+)y", re.IGNORECASE), re.compile(r"(?P<a>x+)y", re.IGNORECASE)
    assert (lazy.pattern, lazy.flags, dict(lazy.groupindex)) == (plain.pattern, plain.flags, dict(plain.groupindex))
    assert lazy.search("aXXy")[0] == "XXy"  # type: ignore[index]
    assert lazy.search.__self__ == plain  # type: ignore[attr-defined]
    assert lazy.sub("-", "xy-xy") == "---"
    assert lazily(rb"\d+").findall(b"1 22") == [b"1", b"22"]


def test_an_invalid_pattern_says_so_at_its_first_use() -> None:
    lazy = lazily("(")
    with pytest.raises(re.error):
        lazy.search("x")
    with pytest.raises(AttributeError):
        lazily("x").nothing  # noqa: B018


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NCCL_TRIAGE_CACHE", str(tmp_path))
    return tmp_path


def kept(*sources: str | bytes, flags: int = 0) -> KeptCode:
    """Return what a process has that compiles patterns and keeps their code."""
    made = KeptCode()
    made.recall()
    for source in sources:
        made.compiled(source, flags)
    made.keep()
    return made


PATTERNS: tuple[tuple[str | bytes, int], ...] = (
    (r"(?P<a>x+)(y)?\b[^\W\d]*(?=z|\Z)", re.IGNORECASE),
    ("(?s:nccl\\.net_.*)\\Z", 0),
    ("[一-鿿\ud800]+|é{2,9}?", 0),
    (rb"(?i)\x00[\x80-\xff]+(?P<b>\d)", re.ASCII),
)


def test_patterns_made_of_kept_code_are_those_that_re_compiles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for source, flags in PATTERNS:
        kept(source, flags=flags)
    assert len(list(folder.iterdir())) == 1
    monkeypatch.setattr(lazy_regex, "_row", lambda *_: pytest.fail("compiled again"))
    later = KeptCode()
    later.recall()
    for source, flags in PATTERNS:
        found, plain = later.compiled(source, flags), re.compile(source, flags)
        assert found == plain  # patterns are equal if flags, source and code are
        assert (found.groups, found.groupindex) == (plain.groups, plain.groupindex)


def test_without_recalling_nothing_is_kept(folder: Path) -> None:
    made = KeptCode()
    assert made.compiled("x").search("x")
    made.keep()
    assert not list(folder.iterdir())


def test_code_is_written_when_there_is_new_code(folder: Path) -> None:
    kept("a")
    (entry,) = folder.iterdir()
    entry.chmod(0o400)
    written = entry.stat().st_ino
    kept("a")
    assert entry.stat().st_ino == written
    kept("b")
    assert entry.stat().st_ino != written
    table = cache.read_table(entry.name)
    assert table is not None
    assert {name.split(" ")[1] for name in table} == {"'a'", "'b'"}


def test_of_too_many_patterns_those_in_use_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_regex, "_MOST", 3)
    kept("a", "b", "c")
    kept("c", "d")
    (entry,) = folder.iterdir()
    assert sorted(cache.read_table(entry.name) or {}) == ["0 'c'", "0 'd'"]


@pytest.mark.parametrize(
    "row",
    [
        None,
        [],
        [32, 0, {}, []],
        [32, 0, {}, [0, 1 << 40]],
        [32, 0, {}, ["x"]],
        [32, 0, {"a": 9}, [1]],
        [32, 0, [], [1]],
        [32, 0, {}, [17, 5, 1]],
        {"a": 1},
    ],
)
def test_damaged_code_is_compiled_again(folder: Path, row: object) -> None:
    kept("ab")
    (entry,) = folder.iterdir()
    cache.write_table(entry.name, {"0 'ab'": row})
    made = kept("ab")
    assert made.compiled("ab").search("cab").span() == (1, 3)
    assert (cache.read_table(entry.name) or {})["0 'ab'"] != row


def test_a_python_with_another_re_compiles_as_usual(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No public function gives the code of a pattern: where the private ones are gone, ``re.compile`` is enough."""
    monkeypatch.setattr(lazy_regex, "COMPILER", object())
    kept = lazy_regex.KeptCode()
    kept.recall()
    assert kept.compiled(r"(?P<name>a+)b").search("xaab")["name"] == "aa"
    with pytest.raises(re.error):
        kept.compiled("(")
    kept.keep()
    assert list(folder.rglob("*pattern*")) == []
