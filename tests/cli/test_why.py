"""``why`` as a user meets it: the chain from runs to verdict, and the way of one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nccl_triage import resources
from nccl_triage.cli.why import split_line
from nccl_triage.errors import UsageError
from tests.cli.processes import ROOT, run

LOG = """nohup: ignoring input
[rank0]: step 1/50 loss 2.1
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
slurmstepd: error: *** JOB 77 ON node001 CANCELLED AT 2026-03-01T18:50:00 DUE TO TIME LIMIT ***
nohup: ignoring input
[rank0]: step 1/50 loss 2.1
[rank0]: RuntimeError: cannot write the summary
[rank0]: step 2/50 loss 2.0
[rank1]: Traceback (most recent call last):
[rank1]:   File "/app/train.py", line 90, in <module>
[rank1]:     main()
[rank1]: KeyError: 'fr'
gpu07:4120:4388 [2] transport/net_ib.cc:1042 NCCL WARN NET/IB : Got async event of a new kind
"""
WRITTEN = ROOT / "corpus" / "written" / "logs"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(LOG, "utf-8")
    return path


def told(*words: str, code: int = 0) -> str:
    result = run("why", *words)
    assert result.returncode == code, result.stderr.decode()
    return (result.stdout if code == 0 else result.stderr).decode()


def rows(text: str) -> dict[str, list[str]]:
    """Return label -> texts of the lines of a page."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines()[1:]:
        found.setdefault(line[2:13].strip(), []).append(line[14:])
    return found


def test_the_chain_goes_from_runs_to_the_verdict(log: Path) -> None:
    found = rows(told(str(log)))
    assert "2 of 2" in found["run"][0] and "choice.last-run-with-end-or-work" in found["run"][0]
    assert f"{log}:5: " in found[""][0] and f"{log}:4; runs.launched-after-end" in found[""][0]
    assert any("survival." in text for text in found["counts"])
    assert found["outcome"][0].startswith("failed") and "outcome.failure-counts" in found["outcome"][0]
    assert found["cause"][0].startswith("application-exception")
    assert "verdict.cause-named" in found["verdict"][0]
    assert "restart.repair-first" in found["restart"][0]
    assert found["otherwise"]


@pytest.mark.parametrize("path", sorted(WRITTEN.glob("S00*.log")), ids=lambda path: path.name)
def test_a_chain_takes_at_most_25_lines(path: Path) -> None:
    text = told(str(path))
    assert 8 <= len(text.splitlines()) <= 25
    assert "{" not in "".join(rows(text)["verdict"])


def test_the_way_of_a_line(log: Path) -> None:
    found = rows(told(f"{log}:12"))
    assert "torch-rank removed" in found["prefix"][0]
    assert found["speaker"] == ["rank 1, host gpu07"]
    assert any("python.exception_line (rules/signatures/python/" in text for text in found["signature"])
    assert found["run"] == ["2 of 2"]
    assert "survival.uncaught" in found["fate"][0] and "otherwise" in found
    assert any("communication.type-of-program" in text for text in found["fate"])


def test_a_line_within_a_traceback_has_its_fate(log: Path) -> None:
    found = rows(told(f"{log}:11"))
    assert "lines 9 to 12 together" in found["signature"][0]
    assert "survival.uncaught" in found["fate"][0]


def test_a_line_that_no_rule_knows_has_the_nearest_ones(log: Path) -> None:
    found = rows(told(f"{log}:13"))
    assert any("rules/signatures/" in text and "stops matching after" in text for text in found["nearest"])


def test_a_line_that_a_premise_refuses_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        "step 1/5 loss 2.1\ntrain_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 256 != 16 * 2 * 8\n"
    )
    found = rows(told(f"{path}:2"))
    assert any("its premise refuses the values" in text for text in found.get("nearest", [])), found


def test_a_line_of_a_folder(log: Path) -> None:
    assert rows(told(str(log.parent), f"{log}:12"))["run"] == ["2 of 2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{log}:99"], "has no line 99"),
        (["{log}:0"], "has no line 0"),
        (["{log}.gone:1"], "gone"),
        (["{log}:1", "{log}:2"], "more than one line is asked for"),
        ([], "standard input is empty"),
    ],
)
def test_what_cannot_be_asked(words: list[str], message: str, log: Path) -> None:
    assert message in told(*(word.format(log=log) for word in words), code=2)


def test_a_file_whose_name_ends_like_a_line_is_a_file(tmp_path: Path) -> None:
    odd = tmp_path / "log:12"
    odd.write_text("step 1 loss 2\n")
    assert split_line([str(odd)]) == ([str(odd)], None)
    assert split_line(["a/b:7"]) == (["a/b"], ("a/b", 7))
    assert split_line(["a", "a/b:7"]) == (["a"], ("a/b", 7))
    with pytest.raises(UsageError):
        split_line(["a:1", "b:2"])


def test_the_trace_has_the_form_of_the_schema(log: Path) -> None:
    schema = json.loads((resources.reports_dir() / "schema" / "report.schema.json").read_text("utf-8"))
    document: dict[str, Any] = json.loads(run(str(log), "--trace", "--format", "json").stdout)
    jsonschema.validate(document, schema)
    assert document["trace"] == json.loads(told(str(log), "--format", "json"))
    assert [one["answer"] for one in document["trace"]["runs"][0]["begins"] or [{"answer": None}]] == [None]
    assert document["trace"]["verdict"]["rule"] == "verdict.cause-named"
    without = json.loads(run(str(log), "--format", "json").stdout)
    assert "trace" not in without
    assert {one["rule"] for one in without["decisions"]} >= {
        "choice.last-run-with-end-or-work",
        "outcome.failure-counts",
    }


def test_verbose_text_says_outcome_and_fate(log: Path) -> None:
    text = run(str(log), "-v").stdout.decode()
    assert "decided: failed: " in text and "outcome.failure-counts]" in text
    assert "survival.uncaught]" in text


def test_in_chinese(log: Path) -> None:
    text = told(str(log), "--lang", "zh")
    assert "结论" in text and "否则" in text
    assert "处理" in told(f"{log}:12", "--lang", "zh")


def test_secrets_are_masked(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("step 1/5 loss 2.1\nRuntimeError: password=hunter2hunter2 was refused\n")
    assert "hunter2" not in told(f"{path}:2") + told(str(path))
