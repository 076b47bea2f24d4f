"""Fixtures that many tests share."""

from __future__ import annotations

import pytest

from nccl_triage.engine import load
from nccl_triage.engine.schema import RuleSet


@pytest.fixture(scope="session")
def rules() -> RuleSet:
    """The shipped rules, loaded once per worker."""
    return load.load()
