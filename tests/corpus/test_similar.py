"""The measurement counts what was shown, what of it was right, and what of that names a cause, by verdict."""

from __future__ import annotations

from pathlib import Path

from corpus.similar import Judged, rows
from nccl_triage.evaluation.cases import LabelledCase


def judged(verdict: str, *shown: str) -> Judged:
    case = LabelledCase("x", Path("x"), "os-limit", ("unknown",), "yes", (), (), None, "x")
    return Judged(case, verdict, shown)


def test_what_is_shown_and_right_is_counted_by_verdict() -> None:
    found = [
        judged("diagnosed", "os-limit", "os-limit"),
        judged("diagnosed", "process-crashed"),
        judged("diagnosed"),
        judged("unknown", "unknown"),
    ]
    assert rows("made up", found) == [
        "| made up | any | 4 | 75 % | 67 % | 50 % |",
        "| made up | diagnosed | 3 | 67 % | 50 % | 100 % |",
        "| made up | unknown | 1 | 100 % | 100 % | 0 % |",
    ]


def test_nothing_shown_is_no_share() -> None:
    assert rows("none", [judged("unknown")])[0] == "| none | any | 1 | 0 % | - | - |"
