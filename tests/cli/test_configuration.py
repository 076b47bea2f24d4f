"""Where the value of an option comes from: flags, variables, the file that is named, the user's own, defaults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nccl_triage.cli import cli, config_files, configuration, every_command
from nccl_triage.errors import TriageError, UsageError

ROOT = Path(__file__).parents[2]
OOM = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
Invoke = Callable[..., Result]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder with a log, a home without files, and no variables of ours."""
    folder = tmp_path / "home" / "project"
    folder.mkdir(parents=True)
    (folder / "trainer.log").write_text(OOM)
    for name in list(os.environ):
        if name.startswith(("NCCL_TRIAGE_", "XDG_CONFIG", "LANG", "LC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def user(project: Path) -> Path:
    """The user's own file, not written yet."""
    path = project.parent / ".config" / "nccl-triage" / "config.yaml"
    path.parent.mkdir(parents=True)
    return path


def shown(*words: str) -> dict[str, dict[str, object]]:
    """Return what ``--show-config`` tells of a command."""
    result = CliRunner().invoke(cli, [*words, "--show-config=json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    text = result.output[result.output.index("{") :]  # behind notes, where they are not kept apart (click 8.1)
    (found,) = json.loads(text)["commands"].values()
    return dict(found)


def origin(key: str, *words: str) -> tuple[object, object]:
    row = shown(*(words or ("diagnose",)))[key]
    return row["value"], row["origin"]


def fails(*words: str) -> TriageError:
    with pytest.raises(TriageError) as caught:
        CliRunner().invoke(cli, list(words), catch_exceptions=False, standalone_mode=False)
    return caught.value


def test_without_any_file_everything_is_a_default(project: Path) -> None:
    found = shown("diagnose")
    assert {row["origin"] for row in found.values()} == {"default"}
    assert found["jobs"]["value"] is None
    assert found["lang"]["value"] == "auto"


def test_the_order_of_precedence(project: Path, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert origin("jobs") == (None, "default")
    user.write_text("# mine\njobs: 2\nlang: en\n")
    assert origin("jobs") == (2, f"{user}:2")
    (project / "run.yaml").write_text("jobs: 5\n")
    assert origin("jobs", "diagnose", "--config", "run.yaml") == (5, "run.yaml:1")
    assert origin("jobs", "diagnose", "--config=run.yaml") == (5, "run.yaml:1")
    assert origin("lang", "diagnose", "--config", "run.yaml") == ("en", f"{user}:3")  # each value has its own origin
    monkeypatch.setenv("NCCL_TRIAGE_CONFIG", "run.yaml")
    assert origin("jobs") == (5, "run.yaml:1")
    monkeypatch.setenv("NCCL_TRIAGE_JOBS", "6")
    assert origin("jobs") == (6, "NCCL_TRIAGE_JOBS")
    monkeypatch.setenv("NCCL_TRIAGE_DIAGNOSE_JOBS", "7")
    assert origin("jobs") == (7, "NCCL_TRIAGE_DIAGNOSE_JOBS")
    assert origin("jobs", "diagnose", "--jobs", "8") == (8, "--jobs")


def test_nothing_is_read_from_where_logs_lie(project: Path) -> None:
    (project / ".nccl-triage.yaml").write_text("jobs: 5\n")
    (project / "config.yaml").write_text("jobs: 5\n")
    (project / "pyproject.toml").write_text("[tool.nccl-triage]\njobs = 4\n")
    assert origin("jobs") == (None, "default")


def test_an_empty_variable_is_none(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_TRIAGE_JOBS", "")
    assert origin("jobs") == (None, "default")


def test_no_config_leaves_files_out_and_variables_in(
    project: Path, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.write_text("jobs: 5\nnonsense: 1\n")
    monkeypatch.setenv("NCCL_TRIAGE_SUSPECTS", "2")
    assert origin("jobs", "diagnose", "--no-config") == (None, "default")
    assert origin("suspects", "verify", "--no-config") == (2, "NCCL_TRIAGE_SUSPECTS")


def test_sections_of_commands_go_before_the_general_part(project: Path, user: Path) -> None:
    user.write_text("format: markdown\nverify:\n  budget: 60\nrules:\n  list:\n    kind: causes\n  lang: zh\n")
    path = user
    assert origin("format") == ("markdown", f"{path}:1")
    assert origin("budget", "verify") == (60.0, f"{path}:3")
    assert origin("budget", "diagnose") == (120.0, "default")
    assert origin("kind", "rules", "list") == ("causes", f"{path}:6")
    assert origin("lang", "rules", "show", "x") == ("zh", f"{path}:7")
    # rules list knows no such format: what counts for every command is not meant for it
    assert origin("format", "rules", "list") == ("text", "default")


def test_lists_flags_and_counts(project: Path, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user.write_text("rules: [site, ~/more, /b]\nexit_code: yes\nverbose: 2\nmodel: none\nprogress: false\n")
    found = shown("diagnose")
    assert found["rules"]["value"] == [str(user.parent / "site"), str(project.parent / "more"), "/b"]
    assert found["exit-code"]["value"] is True
    assert found["verbose"]["value"] == 2
    assert found["model"]["value"] == "none"
    assert found["progress"]["value"] is False
    monkeypatch.setenv("NCCL_TRIAGE_RULES", f"x{os.pathsep}/y")
    monkeypatch.setenv("NCCL_TRIAGE_HOST", "gpu-a, me@gpu-b")
    assert origin("rules") == (["x", "/y"], "NCCL_TRIAGE_RULES")  # as a shell has it: relative to the current folder
    assert origin("host", "verify")[0] == ["gpu-a", "me@gpu-b"]
    assert shown("diagnose", "--rules", "z")["rules"]["value"] == ["z"]


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("jobs: many\n", ":1", "invalid value for jobs"),
        ("jobs: 0\n", ":1", "invalid value for jobs"),
        ("lang: english\n", ":1", "invalid value for lang"),
        ("x: 1\njosb: 2\n", ":1", "unknown key x"),
        ("lang: en\njobbs: 2\n", ":2", "did you mean jobs?"),
        ("verify:\n  bugdet: 3\n", ":2", "did you mean budget?"),
        ("verfiy:\n  budget: 3\n", ":2", "did you mean verify?"),
        ("jobs: [1, 2]\n", ":1", "one value is needed"),
        ("verify: {budget: 1}\njobs: 2\njobs: 3\n", ":3", "listed twice"),
        ("a: b: c\n", ":1", "not a valid configuration"),
        ("- jobs\n", ":1", "expected a mapping"),
        ("verify:\n  suspects: 9\n", ":2", "invalid value for suspects"),
        ("format: pdf\n", ":1", "invalid value for format"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(project: Path, user: Path, text: str, where: str, said: str) -> None:
    path = user
    path.write_text(text)
    error = "\n".join(fails("verify" if "verify" in text else "diagnose", "trainer.log").lines())
    assert error.startswith(f"error: {path}{where}:"), error
    assert said in error


@pytest.mark.parametrize("noise", [b"\xff\xfe\x00jobs", b"jobs: \x80\n"])
def test_what_is_no_text_is_said(project: Path, user: Path, noise: bytes) -> None:
    user.write_bytes(noise)
    assert str(user) in fails("diagnose", "trainer.log").message


@pytest.mark.parametrize("odd", ["/dev/zero", "fifo", "nowhere", "."])
def test_what_is_no_regular_file_is_not_read(project: Path, user: Path, odd: str) -> None:
    os.mkfifo(user.parent / "fifo")
    user.symlink_to(odd)
    assert origin("jobs") == (None, "default")
    with pytest.raises(UsageError, match="cannot read"):
        configuration.layers(str(user))


BOMBS = {
    "deep": "a: " + "[" * 20_000,
    "mappings": "a: " + "{a: " * 15 + "1" + "}" * 15,
    "long": "jobs: " + "9" * 100_000,
    "keys": "\n".join(f"k{number}: 1" for number in range(9_000)),
    "broken": "a: b: c",
    "large": "#" * (configuration.MAX_SIZE + 1),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_made_to_be_too_much_ends_in_a_sentence(user: Path, name: str) -> None:
    user.write_text(BOMBS[name])
    started = time.process_time()
    assert str(user) in "\n".join(fails("diagnose", "trainer.log").lines())
    assert fails("diagnose", "trainer.log", "--config", str(user))
    assert time.process_time() - started < 20


def test_a_long_and_deep_configuration_has_bounds() -> None:
    deep = "".join(f"{' ' * level}a:\n" for level in range(config_files.MAX_DEPTH + 1))
    with pytest.raises(UsageError):
        config_files.read_yaml(Path("x"), f"{deep}{' ' * (config_files.MAX_DEPTH + 1)}a: 1\n")
    lines = "\n".join(f"k{number}: 1" for number in range(config_files.MAX_KEYS))
    assert len(config_files.read_yaml(Path("x"), lines)[()]) == config_files.MAX_KEYS


def test_no_escape_sequence_of_a_file_is_printed(user: Path) -> None:
    user.write_text('rules: ["\\e[2Jx\\u202e"]\ncorpus: "a\\e]0;b\\a"\n')
    for words in (["diagnose", "--show-config"], ["--show-config"], ["diagnose", "--show-config=json"]):
        result = CliRunner().invoke(cli, words, catch_exceptions=False)
        assert result.exit_code == 0
        assert not set(result.output) & set("\x1b\x07\u202e")


def test_rules_from_a_file_that_others_can_write_are_not_used(project: Path, user: Path) -> None:
    path = user
    path.write_text("rules: [evil]\njobs: 2\n")
    path.chmod(0o666)
    result = CliRunner().invoke(cli, ["diagnose", "trainer.log"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert f"{path}:1: rules is not used: others than you can write {path}" in result.output
    assert origin("jobs")[0] == 2
    path.chmod(0o644)
    assert origin("rules")[0] == [str(user.parent / "evil")]
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
        assert origin("rules")[0] == []


def test_misspelt_variables_are_told(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_TRIAGE_FORMTA", "json")
    monkeypatch.setenv("NCCL_TRIAGE_CACHE", "off")
    monkeypatch.setenv("NCCL_TRIAGE_VERIFY_BUDGET", "9")
    result = CliRunner().invoke(cli, ["diagnose", "trainer.log"], catch_exceptions=False)
    assert result.exit_code == 0
    notes = [line for line in result.output.splitlines() if "unknown variable" in line]
    assert notes == ["nccl-triage: unknown variable NCCL_TRIAGE_FORMTA; did you mean NCCL_TRIAGE_FORMAT?"]
    assert "unknown variable" not in CliRunner().invoke(cli, ["diagnose", "trainer.log", "-q"]).output


def test_a_bad_variable_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_TRIAGE_JOBS", "lots")
    assert fails("diagnose", "trainer.log").message == "NCCL_TRIAGE_JOBS: invalid value for jobs"


def test_configured_values_are_used(project: Path, user: Path) -> None:
    user.write_text("format: json\nlang: zh\n")
    result = CliRunner().invoke(cli, ["trainer.log"], catch_exceptions=False)
    assert json.loads(result.stdout)["diagnoses"][0]["cause"] == "gpu-out-of-memory"
    assert "显存" in CliRunner().invoke(cli, ["trainer.log", "--format", "text"]).stdout


def test_help_speaks_the_configured_language_and_bears_a_broken_file(project: Path, user: Path) -> None:
    path = user
    path.write_text("lang: zh\n")
    assert "选项" in CliRunner().invoke(cli, ["diagnose", "--help"]).stdout
    assert "Options" in CliRunner().invoke(cli, ["diagnose", "--help", "--lang", "en"]).stdout
    assert "Options" in CliRunner().invoke(cli, ["diagnose", "--help", "--no-config"]).stdout
    path.write_text("lang: [\n")
    for words in (["--help"], ["diagnose", "--help"], ["--version"]):
        assert CliRunner().invoke(cli, words).exit_code == 0


def test_show_config_of_everything(project: Path, user: Path) -> None:
    user.write_text("verify:\n  budget: 30\n")
    (project / "run.yaml").write_text("lang: en\n")
    result = CliRunner().invoke(cli, ["--config", "run.yaml", "--show-config"], catch_exceptions=False)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"configuration files, first to last: run.yaml, {user}"
    for words in every_command():
        assert f"nccl-triage {' '.join(words)}" in lines
    assert [line.split() for line in lines if "budget" in line and str(user) in line] == [
        ["budget", "30.0", f"{user}:2"]
    ]
    document = json.loads(CliRunner().invoke(cli, ["--config", "run.yaml", "--show-config=json"]).stdout)
    assert document["files"] == ["run.yaml", str(user)]
    assert document["commands"]["verify"]["budget"] == {"value": 30.0, "source": "file", "origin": f"{user}:2"}


def test_show_config_needs_no_arguments_and_does_nothing_else(project: Path) -> None:
    for words in (["explain"], ["rules", "show"], ["model", "train"], ["run"], ["verify"]):
        result = CliRunner().invoke(cli, [*words, "--show-config"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("no configuration file\n\nnccl-triage ")
    # the modules' own commands are as they were
    assert "is missing" in _complaint("rules", "show")


def _complaint(*words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "analyzer")}
    command = [sys.executable, "-m", "nccl_triage", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60).stderr


def test_no_file_costs_nothing_to_speak_of(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    plain = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: read.append(str(self)) or plain(self))
    assert configuration.layers() == []
    assert read == []
