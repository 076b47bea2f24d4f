"""Fixtures that many tests share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nccl_triage.engine import load
from nccl_triage.engine.schema import RuleSet

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def rules() -> RuleSet:
    """The shipped rules, loaded once per worker."""
    return load.load()
