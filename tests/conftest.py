"""Fixtures that many tests share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from nccl_triage import interrupts
from nccl_triage.engine import load
from nccl_triage.engine.schema import RuleSet

# The same examples in every run, so that a run can be repeated; HYPOTHESIS_PROFILE=search looks for others.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, print_blob=True)
# No test sees, or adds to, what was diagnosed on this machine; those of the history name a file of their own.
os.environ["NCCL_TRIAGE_HISTORY"] = "off"
# Tests with a home of their own would compile the rules anew.
os.environ.setdefault("XDG_CACHE_HOME", str(Path("~/.cache").expanduser()))
# Of a shell's background jobs Ctrl-C is ignored, also by the programs that they start: tests send it to theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# So is the end of the terminal of those that nohup starts.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session")
def rules() -> RuleSet:
    """The shipped rules, loaded once per worker."""
    return load.load()


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Set signals as they were: what a worker process or Ray ignores, the programs of later tests would ignore, too."""
    before = {number: signal.getsignal(number) for number in interrupts.SIGNALS}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def pytest_collection_finish() -> None:
    """Keep the collector from looking through ten thousand tests again and again: it was a third of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


pytest_plugins = ["tests.raylets"]
