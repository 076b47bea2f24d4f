"""No text makes an expression slow: each is attacked with what it repeats, again and again, then a mismatch."""

from __future__ import annotations

import importlib
import pkgutil
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

import nccl_triage
from nccl_triage.engine.match import MAX_MATCH
from nccl_triage.engine.schema import RuleSet
from nccl_triage.ingest.blocks import MAX_LINE
from nccl_triage.knowledge import known_issues
from nccl_triage.redaction.names import contexts
from nccl_triage.redaction.secret_kinds import secrets
from tests.hostile.attacks import attacks
from tests.test_lazy_regex import found

#: Seconds of this process that one search may take; the slowest takes a twentieth of it on an idle core.
LIMIT = 1.0
#: The same of a signature and a curve, on the longest text that they are given: docs/robustness.md promises it.
PROMISED = 0.1
#: How often a search may fail: a busy neighbour slows one down, an expression that is slow fails each time.
TRIES = 3
#: Characters of a line that is attacked: what is harmless then is harmless in the longest (four times as many), too.
LINE = MAX_LINE // 4
#: Packages whose expressions see whole lines; the others see texts of a report, which are cut at 4,000 characters.
ON_LINES = ("parsers", "ingest", "scan", "observations.links")
#: Expressions that see less of a line than all: how many characters.
SHORTER = {
    "parsers.templates._FOLDS": 400,
    "parsers.wrappers._DEDUP": 400,
    "parsers.series._LAST_NUMBER": 200,
    "ingest.layout_conditions._END": 255,
    "ingest.walk._DIGITS": 255,
}
#: Expressions that are tried at the beginning of a text only.
AT_THE_BEGINNING = (
    *("parsers.traceback_lines.FRAME", "parsers.traceback_lines.EXCEPTION", "parsers.believed._PROGRAM"),
    *(
        "parsers.traceback_lines.CUSTOM_EXCEPTION",
        "ingest.sniff._CONTINUATION",
        "ingest.progress",
        "parsers.series._PER",
    ),
)


@contextmanager
def limited(what: str, seconds: float = LIMIT) -> Iterator[None]:
    """Fail when the body takes more of the processor than so many seconds; ``re`` lets signals in."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(what)

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def attack(
    name: str, search: Callable[[str], object], source: str, length: int, flags: int = 0, limit: float = LIMIT
) -> int:
    count = 0
    for text in attacks(source, length, flags, variants=1):
        for left in reversed(range(TRIES)):
            try:
                with limited(f"{name}: {text[:80]!r}", limit):
                    search(text)
                break
            except TimeoutError:
                if not left:
                    raise
        count += 1
    return count


def test_signatures_and_series(rules: RuleSet) -> None:
    patterns = [(one.id, one.pattern) for one in rules.signatures.values()]
    patterns += [(one.id, one.pattern) for one in rules.series.formats.values()]
    tried = sum(
        attack(name, pattern.compiled.search, pattern.source, MAX_MATCH, limit=PROMISED) for name, pattern in patterns
    )
    assert len(patterns) > 1000
    assert tried > 2000


def test_prefixes(rules: RuleSet) -> None:
    rows = rules.prefixes.rows.values()
    patterns = [(row.id, one) for row in rows for one in (row.pattern, row.not_speakers) if one is not None]
    assert sum(attack(name, one.compiled.match, one.source, LINE) for name, one in patterns) > 100


def test_layouts(rules: RuleSet) -> None:
    """A path is as long as six names of files may be."""
    rows = rules.layouts.rows.values()
    assert sum(attack(row.id, row.pattern.compiled.search, row.pattern.source, 6 * 255) for row in rows) > 50


def test_known_issues() -> None:
    issues = known_issues.shipped().values()
    assert (
        sum(attack(one.id, one.matches.compiled.search, one.matches.source, known_issues.MAX_TEXT) for one in issues)
        > 50
    )


def test_kinds_of_secrets() -> None:
    assert sum(attack(row.id, row.pattern.compiled.search, row.pattern.source, 4000) for row in secrets()) > 100


def test_places_of_names() -> None:
    assert sum(attack(row.id, row.pattern.compiled.search, row.pattern.source, 4000) for row in contexts()) > 50


def expressions() -> Iterator[tuple[str, re.Pattern[str], str]]:
    """Yield (name, expression, source) of what the modules define, each source once."""
    seen: set[str] = set()
    for module in pkgutil.walk_packages(nccl_triage.__path__, "nccl_triage."):
        short = module.name.removeprefix("nccl_triage.")
        if short.startswith("verify") or short.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            for pattern in [value] if isinstance(value, re.Pattern) else found(value):
                source = pattern.pattern
                source = source.decode("latin-1") if isinstance(source, bytes) else source
                if source not in seen:
                    seen.add(source)
                    flags = pattern.flags & ~re.UNICODE
                    yield f"{short}.{name}", re.compile(source, flags), source


@pytest.mark.parametrize("on_lines", [True, False])
def test_expressions_of_the_code(on_lines: bool) -> None:
    tried = 0
    for name, pattern, source in expressions():
        if name.startswith(ON_LINES) == on_lines:
            length = SHORTER.get(name, LINE if on_lines else 2000)
            search = pattern.match if name.startswith(AT_THE_BEGINNING) else pattern.search
            tried += attack(name, search, source, length, pattern.flags & ~re.UNICODE)
    assert tried > 100


def test_the_attacks_find_what_is_slow() -> None:
    for source in (r"(a+)+$", r"x\d+y*\d+z", r"\s*b", r"(?:a|a)*c"):
        search = re.compile(source).search
        with pytest.raises(TimeoutError), limited(source, 0.3):
            for text in attacks(source, 30_000):
                search(text)
