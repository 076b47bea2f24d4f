"""``nccl-triage render``: the bytes of the direct run, and a reason for everything that is no report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nccl_triage import api, errors
from nccl_triage.cli import cli, render
from nccl_triage.render import FORMATS
from tests.render.documents import ALL, diagnosed, healthy, hostile, unknown, with_words

ROOT = Path(__file__).parents[2]
LOGS = sorted((ROOT / "corpus" / "written" / "logs").iterdir())[20::250]


def invoke(*args: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, list(map(str, args)), input=stdin)


def done(*args: object, stdin: bytes | None = None) -> bytes:
    result = invoke(*args, stdin=stdin)
    assert result.exit_code == 0, (result.exception, result.stderr)
    return result.stdout_bytes


@pytest.fixture
def saved_report(tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(diagnosed()))
    return path


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.name)
def test_the_bytes_are_those_of_the_direct_run(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What differs between two runs is the time that they took.
    read = api.diagnose_jobs(log)
    once = list(read)
    monkeypatch.setattr(api, "diagnose_jobs", lambda *args, **more: api.Jobs(read.scanned, iter(once)))
    report = tmp_path / "report.json"
    report.write_bytes(done("diagnose", log, "--format", "json"))
    for format in FORMATS:
        for lang in ("en", "zh"):
            for more in (["-v"], ["--redact"]):
                wish = ["--format", format, "--lang", lang, *more]
                direct = done("diagnose", log, *wish, "--verify", "never")
                assert done("render", report, *wish) == direct, wish
            page, again = tmp_path / f"{format}-{lang}", tmp_path / f"{format}-{lang}-again"
            done("diagnose", log, "--format", format, "--lang", lang, "-o", page, "--verify", "never")
            done("render", "-", "--format", format, "--lang", lang, "-o", again, stdin=report.read_bytes())
            assert page.read_bytes() == again.read_bytes()


def test_a_report_with_experiments_is_shown_with_them(tmp_path: Path) -> None:
    path = tmp_path / "verified.json"
    path.write_text(json.dumps(ALL["verified"]()))
    assert b"verification: confirmed" in done("render", path)


@pytest.mark.parametrize(("make", "code"), [(diagnosed, 1), (healthy, 0), (unknown, 3)])
def test_exit_codes_on_request(make: Any, code: int, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(make()))
    assert invoke("render", path, "--exit-code").exit_code == code
    assert invoke("render", path).exit_code == 0


def test_the_format_follows_the_name_of_the_output(saved_report: Path, tmp_path: Path) -> None:
    done("render", saved_report, "-o", tmp_path / "x.sarif")
    assert json.loads((tmp_path / "x.sarif").read_bytes())["version"] == "2.1.0"


def test_an_existing_file_is_kept_without_force(saved_report: Path, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    page.write_text("mine")
    result = invoke("render", saved_report, "-o", page)
    assert isinstance(result.exception, errors.UsageError)
    assert page.read_text() == "mine"
    done("render", saved_report, "-o", page, "--force")
    assert page.read_text().startswith("<!doctype html>")


def _deep() -> bytes:
    return (
        json.dumps({**diagnosed(), "later": None})
        .replace('"later": null', '"later": ' + "[" * 500 + "]" * 500)
        .encode()
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"a": "\\ud800"}', "is not JSON"),
        (b"Traceback (most recent call last):\n", "is not JSON"),
        (json.dumps(diagnosed()).encode()[:-9], "is not JSON"),
        (b"[]", "is not a report"),
        (b"null", "is not a report"),
        (b'"report"', "is not a report"),
        (b'{"version": "2.1.0", "runs": []}', "is not a report"),
        (json.dumps({**diagnosed(), "tool": {"name": "trivy"}}).encode(), "is not a report"),
        (json.dumps({**diagnosed(), "tool": "nccl-triage"}).encode(), "is not a report"),
        (json.dumps({**diagnosed(), "schema_version": "1"}).encode(), "is not a report"),
        (json.dumps({**diagnosed(), "schema_version": 2}).encode(), "has version 2"),
        (json.dumps({**diagnosed(), "schema_version": 0}).encode(), "has version 0"),
        (json.dumps({**diagnosed(), "diagnoses": 3}).encode(), "is a damaged report"),
        (json.dumps({**diagnosed(), "verdict": None}).encode(), "is a damaged report"),
        (json.dumps({**diagnosed(), "inputs": [{"path": 1}]}).encode(), "is a damaged report"),
        (
            json.dumps({**diagnosed(), "job": {**diagnosed()["job"], "env": {"\x1b[2J\u202e": 1}}}).encode(),
            "is a damaged",
        ),
        (_deep(), "is a damaged report"),
    ],
)
@pytest.mark.parametrize("way", ["file", "stdin"])
def test_what_is_no_report_is_refused_with_a_reason(data: bytes, said: str, way: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(data)
    result = invoke("render", path) if way == "file" else invoke("render", "-", stdin=data)
    error = result.exception
    assert isinstance(error, errors.InputError)
    assert error.exit_code == 2
    assert said in error.message
    assert error.remedy
    assert result.stdout_bytes == b""
    first, *more = error.lines("zh")
    assert first.startswith("错误: ")
    assert all(line.isprintable() for line in (first, *more))
    assert error.in_language("zh") != error.in_language("en")


def test_a_report_that_is_too_large_is_refused_before_it_is_read(
    saved_report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "MAX_BYTES", saved_report.stat().st_size)
    done("render", saved_report)
    monkeypatch.setattr(render, "MAX_BYTES", saved_report.stat().st_size - 1)
    for result in (invoke("render", saved_report), invoke("render", "-", stdin=saved_report.read_bytes())):
        assert isinstance(result.exception, errors.InputError)
        assert "too large" in result.exception.message


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    for path in (tmp_path / "no.json", tmp_path):
        result = invoke("render", path)
        assert isinstance(result.exception, errors.InputError)
        assert str(path) in result.exception.message


def test_a_mark_at_the_start_of_the_file_does_no_harm(saved_report: Path) -> None:
    saved_report.write_bytes(b"\xef\xbb\xbf" + saved_report.read_bytes())
    assert b"gpu-out-of-memory" in done("render", saved_report)


def test_a_hostile_report_does_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(with_words({**hostile(), "tool": diagnosed()["tool"]})))
    for format in ("text", "junit", "sarif", "github", "markdown"):
        text = done("render", path, "--format", format, "-v").decode()
        assert all(char.isprintable() or char in "\n\t" for char in text), format


def _process(*args: object, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "analyzer")}
    return subprocess.Popen(
        [sys.executable, "-m", "nccl_triage", *map(str, args)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )


def test_three_lines_and_exit_code_2_as_a_user_sees_it(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(b"{}")
    _, error = (process := _process("render", path, "--lang", "en")).communicate(timeout=60)
    assert process.returncode == 2
    assert [line.split(b":")[0] for line in error.splitlines()] == [b"error", b"try"]


def test_a_closed_pipe_costs_no_file(saved_report: Path, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    process = _process("render", saved_report, "--format", "json", "--report", page)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == errors.EXIT_CLOSED_PIPE
    assert page.read_bytes().startswith(b"<!doctype html>")
