"""Write down which rows of evidence, facts and culprit methods hold in which test: ``pytest -p corpus.gate.proofs``.

Tests are the proof of what reads documents other than logs: dumps of flight recorders and stacks, reports of NCCL's RAS
and of `doctor`, baselines. Each process appends ``kind id test`` to a file of its own below ``build/proofs``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nccl_triage.checks.earned import row_id
from nccl_triage.diagnosis import culprit, weigh
from nccl_triage.diagnosis.case import Case, Fact
from nccl_triage.diagnosis.culprit import Culprit
from nccl_triage.diagnosis.weigh import Weighed

PLACE = Path(__file__).parents[2] / "build" / "proofs"
_found: set[tuple[str, str, str]] = set()
_now = ""


def _watch() -> None:
    gather, found_by, fact = weigh.gather, culprit.found_by, Case.fact

    def gathered(case: Case) -> list[Weighed]:
        answer = gather(case)
        for weighed in answer:
            _found.update(("rows", row_id(weighed.cause.id, item.evidence), _now) for item in weighed.contributions)
        return answer

    def found(case: Case, weighed: Weighed) -> tuple[str | None, list[Culprit]]:
        answer = found_by(case, weighed)
        if answer[0] is not None:
            _found.add(("methods", answer[0], _now))
        return answer

    def derived(self: Case, name: str) -> Fact | None:
        answer = fact(self, name)
        if answer is not None and answer.value:
            _found.add(("facts", name, _now))
        return answer

    weigh.gather = gathered
    culprit.found_by = found
    Case.fact = derived  # type: ignore[method-assign]


def pytest_configure(config: pytest.Config) -> None:
    """Watch the diagnosis from the start."""
    _watch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Know which test runs: file and function."""
    global _now
    _now = item.nodeid.partition("[")[0]
    return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what held."""
    PLACE.mkdir(parents=True, exist_ok=True)
    lines = sorted(" ".join(one) for one in _found)
    (PLACE / f"{os.getpid()}.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
