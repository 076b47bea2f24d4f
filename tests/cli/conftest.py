"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nccl_triage.cli import language


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    """Begin and end every test in English: a run in this process leaves its language behind."""
    language.use("en")
    yield
    language.use("en")
