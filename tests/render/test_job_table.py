"""The table of several jobs: the worst first, what failed alike in one line, and safe in every format."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from nccl_triage.document.job_table import row, table
from nccl_triage.render import RenderOptions, job_page, job_table, render

from .documents import diagnosed, healthy, hostile, unknown


def made(*documents: dict[str, Any]) -> dict[str, Any]:
    return table([row(f"job{n}", one) for n, one in enumerate(documents, 1)], [{"en": "left out", "zh": "略过"}])


def numbered(number: int) -> dict[str, Any]:
    return {**diagnosed(), "headline": f"Port {number} is in use.", "headline_zh": f"端口 {number} 已被占用。"}


def test_the_worst_come_first_and_what_failed_alike_is_one() -> None:
    found = made(healthy(), numbered(29500), unknown(), healthy(), numbered(29501))
    assert found["counts"] == {"jobs": 5, "diagnosed": 2, "unknown": 1, "healthy": 2}
    assert [(one["verdict"], one["count"]) for one in found["failures"]] == [
        ("diagnosed", 2),
        ("unknown", 1),
        ("healthy", 2),
    ]
    assert [one["job"] for one in found["jobs"]] == ["job2", "job5", "job3", "job1", "job4"]
    text = job_table.text(found, RenderOptions("en"))
    assert text.startswith("nccl-triage: 5 jobs: 2 with a known cause, 1 of unknown cause, 2 without a failure\n")
    (line,) = [line for line in text.splitlines() if "Port" in line]
    assert line.split()[:2] == ["2", "jobs"]
    assert "[job2, job5]" in line
    assert "left out" in text


def test_another_host_or_message_is_another_failure() -> None:
    other = {**numbered(1), "headline": "The port is blocked."}
    assert [one["count"] for one in made(numbered(1), other)["failures"]] == [1, 1]


def test_it_speaks_chinese() -> None:
    text = job_table.text(made(numbered(29500), healthy()), RenderOptions("zh"))
    assert text.startswith("nccl-triage: 2 个作业：1 个已找到原因，1 个没有故障\n")
    assert "端口 29500 已被占用。" in text


def test_many_jobs_are_named_in_full_only_when_asked() -> None:
    found = made(*map(numbered, range(9)))
    assert "and 6 more" in job_table.text(found, RenderOptions("en"))
    assert "job9" in job_table.text(found, RenderOptions("en", verbose=1))


def test_csv_has_a_line_a_job_and_no_formula() -> None:
    found = made({**diagnosed(), "headline": "=HYPERLINK(1)"}, healthy())
    rows = list(csv.DictReader(io.StringIO(job_table.csv_text(found, RenderOptions("en")))))
    assert [one["job"] for one in rows] == ["job1", "job2"]
    assert rows[0]["headline"] == "'=HYPERLINK(1)"
    (alone,) = csv.DictReader(io.StringIO(render(diagnosed(), "csv").decode()))
    assert alone["cause"] == diagnosed()["diagnoses"][0]["cause"]


def test_json_is_the_table() -> None:
    found = made(diagnosed(), healthy())
    assert json.loads(job_table.json(found, RenderOptions("en"))) == found


def test_the_page_escapes_what_logs_say() -> None:
    found = made(hostile(), healthy())
    found["jobs"][0]["job"] = "<script>alert(1)</script>"
    page = job_page.render(found, "en")
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
