"""Patterns that are compiled late are valid, and behave as compiled ones."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest

import nccl_triage
from nccl_triage.lazy_regex import LazyPattern, lazily


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
    assert lazy.search == plain.search
    assert lazy.sub("-", "xy-xy") == "---"
    assert lazily(rb"\d+").findall(b"1 22") == [b"1", b"22"]


def test_an_invalid_pattern_says_so_at_its_first_use() -> None:
    lazy = lazily("(")
    with pytest.raises(re.error):
        lazy.search("x")
    with pytest.raises(AttributeError):
        lazily("x").nothing  # noqa: B018
