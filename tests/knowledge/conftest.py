"""The knowledge is read once; a test that changes where it lies clears what was read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nccl_triage.knowledge import variables


@pytest.fixture
def fresh() -> Iterator[None]:
    """Read the variables anew in this test and in the one after it."""
    variables.shipped.cache_clear()
    yield
    variables.shipped.cache_clear()
