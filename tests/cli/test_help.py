"""Help, colours, and answers to mistyped words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from nccl_triage.cli import COMMANDS, cli, every_command
from nccl_triage.cli.language import columns
from nccl_triage.cli.usage import GROUPS, fold, keys, paragraphs
from tests import prepared

ROOT = Path(__file__).parents[2]
OOM = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
ALL = [(), *every_command(), ("rules",), ("model",)]


def run(*words: str, cwd: Path | None = None, **extra: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LANG", "LC_", "NO_COLOR", "FORCE_", "NCCL_"))}
    ended = prepared.run(words, env={**kept, **extra}, cwd=cwd)
    return subprocess.CompletedProcess(words, ended.returncode, ended.stdout.decode(), ended.stderr.decode())


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_has_help_by_both_names(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(cli, [*words, "--help"])
    assert shown.exit_code == 0
    assert shown.stdout.startswith("Usage: ")
    assert CliRunner().invoke(cli, [*words, "-h"]).stdout == shown.stdout


@pytest.mark.parametrize("words", list(every_command()), ids=" ".join)
def test_examples_come_before_the_options(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(cli, [*words, "--help"]).stdout
    assert 0 < shown.index("\nExample") < shown.index("\nOptions:")
    example = shown[shown.index("\nExample") : shown.index("\nOptions:")]
    assert f"nccl-triage {' '.join(words)}" in example or words == ("diagnose",)


def test_the_group_lists_commands_and_exit_codes() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).stdout
    for name in COMMANDS:
        assert f"\n  {name} " in shown
    told = " ".join(shown.split())
    for code in ("0 analysed", "1 cause found", "2 usage", "3 failure", "4 verification", "70 bug", "130", "141"):
        assert code in told


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [60, 80, 100])
def test_help_fits_the_terminal(lang: str, width: int) -> None:
    for words in ALL:
        shown = CliRunner().invoke(cli, [*words, "--help", "--lang", lang], terminal_width=width).stdout
        too_long = [line for line in shown.splitlines() if columns(line) > width]
        # Commands are there to be copied, and names of options are not cut.
        assert [
            x for x in too_long if not x.lstrip().startswith(("nccl-triage", "-", "srun", "eval"))
        ] == [] or width < 80


def test_folding_counts_columns_and_keeps_punctuation_with_its_character() -> None:
    assert fold("one two three", 7) == ["one two", "three"]
    assert fold("一二三，四五六", 6) == ["一二", "三，四", "五六"]
    assert fold("a-word-that-is-too-long x", 5) == ["a-word-that-is-too-long", "x"]
    assert fold("  several\n  spaces ", 80) == ["several spaces"]


def test_paragraphs_and_the_keys_of_their_translations() -> None:
    text = "One\ntwo.\n\n\b\nExamples:\n  command\n\nThree."
    assert paragraphs(text) == ["One\ntwo.", "\b\nExamples:\n  command", "Three."]
    assert keys(text) == ["One two.", "Examples:", "Three."]


@pytest.mark.parametrize(
    ("words", "cause", "remedy"),
    [
        (
            ["explian", "x"],
            "there is no file or command called explian",
            "did you mean nccl-triage explain?",
        ),
        (["traner.log"], "no readable input", "did you mean trainer.log?"),
        (["logs/traner.log"], "no readable input", "give log files, folders"),
        (["trainer.log", "--fromat", "json"], "there is no option --fromat", "did you mean --format?"),
        (["trainer.log", "--wrong"], "there is no option --wrong", "nccl-triage diagnose --help lists the options"),
        (["--wrong"], "there is no option --wrong", "nccl-triage diagnose --help lists the options"),
        (["trainer.log", "--out", "x"], "there is no option --out", "did you mean --output?"),
        (["trainer.log", "--html"], "there is no option --html", "did you mean --format html?"),
        (["doctor", "--quite"], "there is no option --quite", "did you mean --quiet?"),
        (["trainer.log", "--zzzzzz"], "there is no option --zzzzzz", "nccl-triage diagnose --help lists the options"),
        (["trainer.log", "--format", "jsno"], "invalid value for --format", "did you mean json?"),
        (["trainer.log", "--jobs", "many"], "invalid value for --jobs", "nccl-triage diagnose --help"),
        (["trainer.log", "--format"], "option '--format' requires an argument", "nccl-triage diagnose --help"),
        (
            ["model", "trian", "x"],
            "there is no command nccl-triage model trian",
            "did you mean nccl-triage model train?",
        ),
        (["model", "zzz"], "there is no command nccl-triage model zzz", "the commands are train, evaluate"),
        (["rules", "show"], "RULE is missing", "nccl-triage rules show --help"),
        (["rules", "show", "a", "b"], "got unexpected extra argument (b)", "nccl-triage rules show --help"),
        (["completion", "zhs"], "invalid value for SHELL", "did you mean zsh?"),
    ],
)
def test_what_is_mistyped_is_answered_with_the_nearest(
    tmp_path: Path, words: list[str], cause: str, remedy: str
) -> None:
    (tmp_path / "trainer.log").write_text(OOM)
    result = run(*words, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[0] == f"error: {cause}"
    assert lines[-1].startswith(f"try: {remedy}")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["--format", "pdf"],
            "pdf is not one of auto, text, json, ndjson, csv, markdown, html, sarif, junit, github, brief, prompt",
        ),
        (["--lang", "de"], "de is not one of auto, en, zh"),
        (["--jobs", "many"], "many is not a whole number from 1 to 64"),
        (["--jobs", "0"], "0 is not a whole number from 1 to 64"),
        (["--budget", "soon"], "soon is not a number from 1 to 86400"),
        (["history", "list", "--limit", "0"], "0 is not a whole number from 1 up"),
    ],
)
def test_an_invalid_value_is_told_with_the_valid_ones(tmp_path: Path, words: list[str], why: str) -> None:
    (tmp_path / "trainer.log").write_text(OOM)
    given = words if words[0] == "history" else ["trainer.log", *words]
    result = run(*given, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    name = next(word for word in words if word.startswith("--"))
    assert result.stderr.splitlines()[:2] == [f"error: invalid value for {name}", f"cause: {why}"]


def section(shown: str, title: str) -> str:
    """Return the lines of a help page below a title."""
    return shown[shown.index(f"\n{title}:\n") :].removeprefix(f"\n{title}:\n").partition("\n\n")[0]


def test_the_program_shows_paths_and_the_report_first() -> None:
    shown = CliRunner().invoke(cli, ["--help"], terminal_width=80, prog_name="nccl-triage").stdout
    assert shown.startswith("Usage: nccl-triage [OPTIONS] PATHS...\n")
    assert "PATHS are log files" in shown
    assert section(shown, "Options").startswith("  --report FILE")
    assert shown.index("\nOptions:") < shown.index("\nCommands:")
    assert len(shown.splitlines()) <= 60
    for name in COMMANDS:
        assert any(line.startswith(f"  {name} ") for line in section(shown, "Commands").splitlines())
    assert len(section(shown, "Commands").splitlines()) == len(COMMANDS), "a command a line"


@pytest.mark.parametrize("words", list(every_command()), ids=" ".join)
def test_options_stand_in_groups_that_fit_on_a_screen(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(cli, [*words, "--help"], terminal_width=80).stdout
    titles = [title for title, _ in GROUPS if f"\n{title}:\n" in shown]
    assert titles[0] == "Options"
    assert all(len(section(shown, title).splitlines()) <= 24 for title in titles)
    listed = [line.split()[0] for line in shown.splitlines() if line.startswith("  -")]
    command = every_command()[words]
    assert len(listed) == sum(isinstance(param, click.Option) for param in command.params) + 1  # --help


def test_preflight_has_no_help_for_what_it_does_not_do() -> None:
    shown = " ".join(CliRunner().invoke(cli, ["preflight", "--help"]).stdout.split())
    for word in ("slurm", "print", "the log"):
        assert word not in shown
        assert word in " ".join(CliRunner().invoke(cli, ["verify", "--help"]).stdout.split())


def test_a_file_that_is_named_like_a_mistyped_command_is_read(tmp_path: Path) -> None:
    (tmp_path / "explian").write_text(OOM)
    assert "gpu-out-of-memory" in run("explian", cwd=tmp_path).stdout
    (tmp_path / "explain").write_text(OOM)
    assert "gpu-out-of-memory" in run("./explain", cwd=tmp_path).stdout


def test_options_of_all_commands_may_stand_before_the_command(tmp_path: Path) -> None:
    assert "用法" in run("--lang", "zh", "rules", "list", "--help").stdout
    assert "用法" in run("--lang=zh", "--help").stdout
    assert "用法" in run("rules", "--lang", "zh", "list", "--help").stdout
    (tmp_path / "x.log").write_text(OOM)
    assert "显存" in run("--no-config", "--lang", "zh", "x.log", cwd=tmp_path).stdout


def test_groups_without_a_command_show_their_help() -> None:
    result = run("rules")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: nccl-triage rules")


@pytest.mark.parametrize(
    ("words", "extra", "colored"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--color", "always"], {}, True),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        (["--color", "auto"], {"FORCE_COLOR": "1"}, True),
        ([], {"NCCL_TRIAGE_COLOR": "always"}, True),
        (["--color=never"], {"NCCL_TRIAGE_COLOR": "always"}, False),
    ],
)
def test_colours(tmp_path: Path, words: list[str], extra: dict[str, str], colored: bool) -> None:
    (tmp_path / "x.log").write_text(OOM)
    result = run("x.log", *words, cwd=tmp_path, **extra)
    assert result.returncode == 0, result.stderr
    assert ("\x1b[" in result.stdout) == colored
    failed = run("missing.log", *words, cwd=tmp_path, **extra)
    assert failed.stderr.startswith("\x1b[31m\x1b[1merror\x1b[0m: " if colored else "error: ")


def test_a_dumb_terminal_gets_no_colours(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(OOM)
    script = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) and 1)"
    for term, colored in (("dumb", False), ("xterm", True)):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NO_COLOR", "FORCE_", "NCCL_"))}
        result = subprocess.run(
            [sys.executable, "-c", script, sys.executable, "-m", "nccl_triage", "x.log"],
            capture_output=True, cwd=tmp_path, env={**kept, "TERM": term, "PYTHONPATH": str(ROOT / "analyzer")},
            stdin=subprocess.DEVNULL, timeout=60, check=True,
        )  # fmt: skip
        assert (b"\x1b[" in result.stdout) == colored, term


def test_names_cannot_reach_the_terminal_through_an_error(tmp_path: Path) -> None:
    result = run("x\x1b]0;owned\x07.log", "--lang", "en", cwd=tmp_path)
    assert result.returncode == 2
    assert "\x1b" not in result.stderr
    assert "\x07" not in result.stderr


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_standard_streams(tmp_path: Path, closed: str) -> None:
    (tmp_path / "x.log").write_text(OOM)
    script = f'exec "$@" {closed}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "analyzer")}
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "nccl_triage", "x.log", "--exit-code"]
    result = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment, timeout=60, check=False)
    assert result.returncode == 1
    assert b"Traceback" not in result.stderr
