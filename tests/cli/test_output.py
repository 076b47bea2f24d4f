"""What becomes of a result: formats, files, notes, the summary of a GitHub step."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from nccl_triage import errors
from nccl_triage.cli import cli, options, output
from nccl_triage.render import FORMATS
from nccl_triage.render.github import SUMMARY_BYTES
from tests.render.documents import Doc, diagnosed, hostile, not_run, with_words

#: What new files of this process may not have.
UMASK = os.umask(0o022)
os.umask(UMASK)
OOM = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 79.15 GiB of which 141.25 MiB is free.\n"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(diagnosed()))
    return path


def invoke(*args: object, env: dict[str, str | None] | None = None) -> Result:
    return CliRunner().invoke(cli, list(map(str, args)), env={"GITHUB_STEP_SUMMARY": None, **(env or {})})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x.sarif", "sarif"),
        ("x.sarif.json", "sarif"),
        ("X.SARIF.JSON", "sarif"),
        ("x.json", "json"),
        ("x.ndjson", "ndjson"),
        ("x.jsonl", "ndjson"),
        ("TEST-job.xml", "junit"),
        ("x.md", "markdown"),
        ("x.html", "html"),
        ("x.htm", "html"),
        ("x.txt", "text"),
        ("x.log", "text"),
        ("sarif", "text"),
        ("x.json.bak", "text"),
    ],
)
def test_auto_takes_the_format_from_the_suffix(name: str, expected: str) -> None:
    assert output.format_of("auto", Path("some.json") / name) == expected
    assert output.format_of("markdown", Path(name)) == "markdown"


def test_auto_is_text_without_a_file_even_in_a_workflow(report: Path) -> None:
    result = invoke("render", report, env={"GITHUB_ACTIONS": "true", "CI": "true"})
    assert result.stdout.startswith("nccl-triage: Rank 2 ran out of GPU memory")


def test_every_suffix_belongs_to_one_format() -> None:
    suffixes = [suffix for made in FORMATS.values() for suffix in made.suffixes]
    assert len(suffixes) == len(set(suffixes))
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in suffixes)


@pytest.mark.parametrize("command", ["diagnose", "render", "verify"])
def test_the_commands_share_their_options(command: str) -> None:
    text = invoke(command, "--help").stdout
    for option in ("--format", "--output", "--report", "--force", "--redact", "--quiet", "--verbose", "--lang"):
        assert option in text
    assert "sarif|junit|github" in "".join(text.split())


def test_a_file_leaves_the_headline_on_stderr(report: Path, tmp_path: Path) -> None:
    page = tmp_path / "x.xml"
    result = invoke("render", report, "-o", page)
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"nccl-triage: {diagnosed()['headline']}",
        f"nccl-triage: junit written to {page}",
    ]
    assert ElementTree.parse(page).getroot().tag == "testsuites"
    assert page.stat().st_mode & 0o777 == 0o666 & ~UMASK
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "x.xml"]


def test_notes_are_said_in_the_readers_language(report: Path, tmp_path: Path) -> None:
    result = invoke("render", report, "-o", tmp_path / "x.md", "--report", tmp_path / "x.html", "--lang", "zh")
    assert diagnosed()["headline_zh"] in result.stderr
    assert result.stderr.count("写入") == 2
    assert "written" not in result.stderr


def test_quiet_says_nothing(report: Path, tmp_path: Path) -> None:
    assert invoke("render", report, "-o", tmp_path / "x.md", "--report", tmp_path / "x.html", "-q").stderr == ""


def test_a_report_beside_the_result_says_what_verification_came_to(report: Path, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    result = invoke("render", report, "--format", "ndjson", "--report", page)
    assert json.loads(result.stdout)["verdict"] == "diagnosed"
    assert f"nccl-triage: report written to {page} (" in result.stderr
    assert page.read_bytes().startswith(b"<!doctype html>")
    report.write_text(json.dumps(not_run()))
    again = invoke("render", report, "--report", page, "--force")
    assert "not verified; to confirm: nccl-triage verify" in again.stderr


def test_two_results_do_not_overwrite_each_other(report: Path, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    result = invoke("render", report, "-o", page, "--report", tmp_path / "." / "x.html", "--force")
    assert isinstance(result.exception, errors.UsageError)
    assert "same file" in result.exception.message
    assert not page.exists()


def test_files_are_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "x.md").touch()
    for option in ("-o", "--report"):
        result = invoke("diagnose", tmp_path / "missing.log", option, tmp_path / "x.md")
        assert isinstance(result.exception, errors.UsageError)
        assert "already exists" in result.exception.message


def test_the_headline_of_a_hostile_report_is_harmless_on_stderr(report: Path, tmp_path: Path) -> None:
    report.write_text(json.dumps(with_words({**hostile(), "tool": diagnosed()["tool"]})))
    text = invoke("render", report, "-o", tmp_path / "x.md").stderr
    assert "<script>" in text
    assert all(char.isprintable() or char == "\n" for char in text)


@pytest.fixture
def summary(tmp_path: Path) -> Path:
    return tmp_path / "step_summary"


def in_step(report: Path, summary: Path, *more: object) -> Result:
    return invoke("render", report, "--format", "github", *more, env={"GITHUB_STEP_SUMMARY": str(summary)})


def test_github_appends_the_report_to_the_summary_of_the_step(report: Path, summary: Path) -> None:
    summary.write_text("before\n")
    result = in_step(report, summary)
    assert result.stdout.startswith("::error file=logs/trainer.log,line=1182,")
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("before\n## nccl-triage: Rank 2 ran out of GPU memory")
    assert text == "before\n" + invoke("render", report, "--format", "markdown").stdout
    in_step(report, summary, "--lang", "zh")
    assert "## nccl-triage: rank 2 显存耗尽" in summary.read_text(encoding="utf-8")


def test_only_github_writes_a_summary(report: Path, summary: Path) -> None:
    invoke("render", report, "--format", "markdown", env={"GITHUB_STEP_SUMMARY": str(summary)})
    assert not summary.exists()


def test_a_summary_never_grows_beyond_what_github_takes(report: Path, summary: Path) -> None:
    whole = len(invoke("render", report, "--format", "markdown").stdout.encode())
    summary.write_bytes(b"x" * (SUMMARY_BYTES - whole + 1))
    in_step(report, summary)
    assert SUMMARY_BYTES - 400 < summary.stat().st_size <= SUMMARY_BYTES
    assert summary.read_text(encoding="utf-8").endswith("--format markdown shows all of it.\n")
    summary.write_bytes(b"x" * (SUMMARY_BYTES - 10))
    in_step(report, summary)
    assert summary.stat().st_size == SUMMARY_BYTES - 10


def test_a_summary_that_cannot_be_written_costs_nothing_else(report: Path, tmp_path: Path) -> None:
    result = in_step(report, tmp_path / "no" / "such" / "file")
    assert result.exit_code == 0
    assert result.stdout.startswith("::error ")
    assert "no step summary" in result.stderr
    assert in_step(report, tmp_path / "no" / "such" / "file", "-q").stderr == ""


def test_the_annotations_go_to_a_file_when_asked(report: Path, summary: Path, tmp_path: Path) -> None:
    result = in_step(report, summary, "-o", tmp_path / "annotations")
    assert result.stdout == ""
    assert (tmp_path / "annotations").read_text().startswith("::error ")
    assert summary.exists()


NAMES = ("node-a", "node-b", "10.0.0.1", "10.0.0.2")


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_redacted_results_name_no_host_in_any_format(report: Path, format: str) -> None:
    plain, redacted = (invoke("render", report, "--format", format, *more) for more in ([], ["--redact"]))
    assert redacted.exit_code == 0, redacted.exception
    assert "gpu-out-of-memory" in redacted.stdout
    assert any(name in plain.stdout for name in NAMES) != FORMATS[format].redacted
    assert not any(name in redacted.stdout for name in NAMES)


def test_a_redacted_report_and_summary_name_no_host_either(report: Path, summary: Path, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    in_step(report, summary, "--redact", "--report", page)
    for path in (summary, page):
        text = path.read_text(encoding="utf-8")
        assert "gpu-out-of-memory" in text
        assert not any(name in text for name in NAMES)


def test_redacting_twice_changes_nothing_more(report: Path, tmp_path: Path) -> None:
    once = tmp_path / "once.json"
    invoke("render", report, "-o", once, "--redact")
    for format in ("text", "markdown", "sarif"):
        args = ["--format", format, "--redact"]
        assert invoke("render", once, *args).stdout == invoke("render", report, *args).stdout


def test_a_direct_run_redacts_too(tmp_path: Path) -> None:
    log = tmp_path / "alice-secret-project.log"
    log.write_text(OOM)
    result = invoke("diagnose", log, "--format", "markdown", "--redact")
    assert "gpu-out-of-memory" in result.stdout
    assert "alice-secret" not in result.stdout


def exit_codes() -> list[tuple[Doc, bool, int]]:
    return [
        ({"verdict": verdict}, wanted, code if wanted else 0)
        for verdict, code in (("healthy", 0), ("diagnosed", 1), ("unknown", 3))
        for wanted in (True, False)
    ]


@pytest.mark.parametrize(("document", "wanted", "code"), exit_codes())
def test_exit_codes(document: Any, wanted: bool, code: int) -> None:
    assert output.exit_code(document, wanted) == code


@pytest.mark.parametrize("format", ["sarif", "html", "github"])
def test_a_plan_has_text_and_json_only(report: Path, format: str) -> None:
    result = invoke("verify", report, "--dry-run", "--format", format)
    assert isinstance(result.exception, errors.UsageError)
    assert format in result.exception.message


def test_a_plan_for_a_redacted_report_says_that_its_hosts_are_pseudonyms(report: Path, tmp_path: Path) -> None:
    redacted = tmp_path / "redacted.json"
    assert invoke("render", report, "--format", "json", "--redact", "--output", redacted).exit_code == 0
    for path, told in ((redacted, True), (report, False)):
        assert ("no host can be reached by its pseudonym" in invoke("verify", path, "--dry-run").stderr) is told


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_the_umask_decides_who_may_read_a_result(tmp_path: Path, umask: int, mode: int) -> None:
    log = tmp_path / "x.log"
    log.write_text(OOM)
    written = [tmp_path / "x.json", tmp_path / "x.html"]
    before = os.umask(umask)
    try:
        invoke(log, "--no-history", "--verify", "never", "--output", written[0], "--report", written[1])
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in written] == [mode, mode]


def test_a_result_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.touch(mode=0o600)
    path.chmod(0o640)
    options.write_file(path, b"new", force=True)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o640)
