"""Evidence stays: a log that was masked or redacted before it is read has the verdict of the log as it was."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pytest

from docs import leaks
from nccl_triage import diagnose
from nccl_triage.evaluation import cases
from nccl_triage.redaction import redact
from nccl_triage.redaction.secrets import Masker

ROOT = Path(__file__).parents[2]
#: One of so many labelled cases is tried.
EACH = 300
LOGS = [
    case.log
    for name in ("written", "recorded")
    for case in cases.read(ROOT / "corpus" / name)[::EACH]
    if case.log.stat().st_size < 200_000
]


def verdict(lines: list[str]) -> tuple[Any, ...]:
    document = diagnose("-", stdin=io.BytesIO("\n".join(lines).encode())).to_dict()
    best = document["diagnoses"][0] if document["diagnoses"] else {"cause": None, "culprits": []}
    return document["verdict"], best["cause"], sorted(str(one["rank"]) for one in best["culprits"])


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_masking_and_redacting_the_log_changes_no_verdict(log: Path) -> None:
    dice = random.Random(log.stem)
    lines = log.read_text("utf-8", "replace").splitlines()
    # Lines that somebody's entry script printed before the job began.
    given = [form.line for form in dice.sample(leaks.forms("secrets"), 12)]
    lines = [*(f"+ {line}" for line in given), *lines]
    before = verdict(lines)
    masker = Masker(lines)
    masked = [masker.text(line) for line in lines]
    assert masked != lines
    assert verdict(masked) == before
    assert verdict(redact({"notes": lines})["notes"]) == before
