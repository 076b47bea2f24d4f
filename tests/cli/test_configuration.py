"""Where the value of an option comes from: flags, variables, files of the project, the user's file, defaults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nccl_triage.cli import cli, configuration, consent, every_command, settings
from nccl_triage.errors import TriageError

ROOT = Path(__file__).parents[2]
OOM = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
Invoke = Callable[..., Result]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that is the current folder, a home without files, and no variables of ours."""
    folder = tmp_path / "home" / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "trainer.log").write_text(OOM)
    for name in list(os.environ):
        if name.startswith(("NCCL_TRIAGE_", "XDG_CONFIG", "LANG", "LC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    # Whether a file counts at all: tests/cli/test_consent.py.
    monkeypatch.setattr(consent, "of", lambda path: consent.Consent(str(path), "allowed"))
    monkeypatch.setattr(consent, "digest", lambda layer: "allowed")
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
    sources = {
        user: "# mine\njobs: 2\n",
        project / "setup.cfg": "[metadata]\nname = x\n\n[nccl-triage]\njobs = 3\n",
        project / "pyproject.toml": '[project]\nname = "x"\n[tool.nccl-triage]\n\njobs = 4\n',
        project / ".nccl-triage.yaml": "lang: en\njobs: 5\n",
    }
    assert origin("jobs") == (None, "default")
    for number, (path, text) in enumerate(sources.items(), 2):
        path.write_text(text)
        line = next(n for n, content in enumerate(text.splitlines(), 1) if content.startswith("jobs"))
        assert origin("jobs") == (number, f"{path}:{line}")
    monkeypatch.setenv("NCCL_TRIAGE_JOBS", "6")
    assert origin("jobs") == (6, "NCCL_TRIAGE_JOBS")
    monkeypatch.setenv("NCCL_TRIAGE_DIAGNOSE_JOBS", "7")
    assert origin("jobs") == (7, "NCCL_TRIAGE_DIAGNOSE_JOBS")
    assert origin("jobs", "diagnose", "--jobs", "8") == (8, "--jobs")
    assert origin("lang") == ("en", f"{project / '.nccl-triage.yaml'}:1")  # each value has its own origin


def test_an_empty_variable_is_none(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_TRIAGE_JOBS", "")
    assert origin("jobs") == (None, "default")


def test_no_config_leaves_files_out_and_variables_in(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / ".nccl-triage.yaml").write_text("jobs: 5\nnonsense: 1\n")
    monkeypatch.setenv("NCCL_TRIAGE_SUSPECTS", "2")
    assert origin("jobs", "diagnose", "--no-config") == (None, "default")
    assert origin("suspects", "verify", "--no-config") == (2, "NCCL_TRIAGE_SUSPECTS")


def test_the_nearest_file_up_to_the_root_of_the_repository(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = project / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    (project.parent / ".nccl-triage.yaml").write_text("jobs: 2\n")  # above the repository
    assert origin("jobs") == (None, "default")
    (project / ".nccl-triage.yaml").write_text("jobs: 3\n")
    assert origin("jobs")[0] == 3
    (project / "a" / "pyproject.toml").write_text("[tool.other]\njobs = 9\n")  # not ours: it does not count
    (project / "a" / ".nccl-triage.yaml").write_text("jobs: 4\n")
    assert origin("jobs") == (4, f"{project / 'a' / '.nccl-triage.yaml'}:1")


def test_outside_of_repository_and_home_only_the_current_folder_counts(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared" / "run"
    shared.mkdir(parents=True)
    (tmp_path / "shared" / ".nccl-triage.yaml").write_text("jobs: 2\n")
    monkeypatch.chdir(shared)
    assert origin("jobs") == (None, "default")
    (shared / ".nccl-triage.yaml").write_text("jobs: 3\n")
    assert origin("jobs")[0] == 3


def test_sections_of_commands_go_before_the_general_part(project: Path) -> None:
    (project / ".nccl-triage.yaml").write_text(
        "format: markdown\nverify:\n  budget: 60\nrules:\n  list:\n    kind: causes\n  lang: zh\n"
    )
    path = project / ".nccl-triage.yaml"
    assert origin("format") == ("markdown", f"{path}:1")
    assert origin("budget", "verify") == (60.0, f"{path}:3")
    assert origin("budget", "diagnose") == (120.0, "default")
    assert origin("kind", "rules", "list") == ("causes", f"{path}:6")
    assert origin("lang", "rules", "show", "x") == ("zh", f"{path}:7")
    # rules list knows no such format: what counts for every command is not meant for it
    assert origin("format", "rules", "list") == ("text", "default")


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("pyproject.toml", '[tool.nccl-triage.verify]\nbudget = 60\n"suspects" = 2\n', 2),
        ("pyproject.toml", "[tool.nccl-triage]\nlang = 'en'\n\n[tool.nccl-triage.verify]\n# s\nbudget=60.0\n", 6),
        ("pyproject.toml", "[tool]\nx = 1\n[tool.nccl-triage]\nverify = {budget = 60}\n", 3),
        ("setup.cfg", "[nccl-triage.verify]\nbudget: 60\n", 2),
        (".nccl-triage.yaml", "verify: {suspects: 1,\n  budget: 60}\n", 2),
    ],
)
def test_lines_of_values_in_every_kind_of_file(project: Path, name: str, text: str, line: int) -> None:
    (project / name).write_text(text)
    assert origin("budget", "verify") == (60.0, f"{project / name}:{line}")


def test_lists_flags_and_counts(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "setup.cfg").write_text("[nccl-triage]\nrules =\n    site\n    ~/more\nexit-code = yes\nverbose = 2\n")
    found = shown("diagnose")
    assert found["rules"]["value"] == [str(project / "site"), str(project.parent / "more")]
    assert found["exit-code"]["value"] is True
    assert found["verbose"]["value"] == 2
    (project / "pyproject.toml").write_text(
        "[tool.nccl-triage]\nrules = ['a', '/b']\nexit_code = false\nmodel = 'none'\nprogress = false\n"
    )
    found = shown("diagnose")
    assert found["rules"]["value"] == [str(project / "a"), "/b"]
    assert found["exit-code"]["value"] is False
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
def test_what_is_wrong_is_told_with_its_line(project: Path, text: str, where: str, said: str) -> None:
    path = project / ".nccl-triage.yaml"
    path.write_text(text)
    error = "\n".join(fails("verify" if "verify" in text else "diagnose", "trainer.log").lines())
    assert error.startswith(f"error: {path}{where}:"), error
    assert said in error


def test_broken_files_of_others_are_not_ours_to_refuse(project: Path) -> None:
    (project / "pyproject.toml").write_text("[project\n# nccl-triage is nice\n")
    (project / "setup.cfg").write_text("nccl-triage without a section\n")
    assert origin("jobs") == (None, "default")
    (project / "pyproject.toml").write_text("[tool.nccl-triage]\njobs = = 2\n")
    assert "not a valid configuration" in fails("diagnose", "trainer.log").message
    assert "--no-config" in str(fails("diagnose", "trainer.log").remedy)


@pytest.mark.parametrize("noise", [b"\xff\xfe\x00jobs", b"jobs: \x80\n"])
def test_what_is_no_text_is_said(project: Path, noise: bytes) -> None:
    (project / ".nccl-triage.yaml").write_bytes(noise)
    assert str(project / ".nccl-triage.yaml") in fails("diagnose", "trainer.log").message


def test_odd_things_in_place_of_files(project: Path) -> None:
    (project / ".nccl-triage.yaml").mkdir()
    os.mkfifo(project / "setup.cfg")
    (project / "pyproject.toml").symlink_to("nowhere")
    assert origin("jobs") == (None, "default")


@pytest.mark.parametrize("key", sorted(settings.USER_KEYS))
def test_a_file_of_the_project_must_not_choose_what_runs_or_where_is_written(
    project: Path, user: Path, key: str
) -> None:
    command = next(" ".join(w) for w, c in every_command().items() if key in settings.options_of(c))
    (project / ".nccl-triage.yaml").write_text(f"{key}: /tmp/evil\n")
    error = fails(*command.split(), "trainer.log")
    assert error.message == f"{project / '.nccl-triage.yaml'}:1: {key} may not be set by a file of the project"
    assert not Path("/tmp/evil").exists()
    (project / ".nccl-triage.yaml").unlink()
    value = next(c for c in every_command().values() if key in settings.options_of(c))
    option = settings.options_of(value)[key]
    texts = {"before": "90d", "engine": "ray", "launcher": "ray", "pid": "12", "signal": "USR1"}
    text = texts.get(key, "true" if option.is_flag else "mine")
    user.write_text(f"{key}: {text}\n")
    assert origin(key, *command.split())[1] == f"{user}:1"


def test_every_option_is_either_for_projects_or_for_users() -> None:
    keys = {key for command in every_command().values() for key in settings.options_of(command)}
    assert settings.PROJECT_KEYS.isdisjoint(settings.USER_KEYS)
    assert keys - settings.PROJECT_KEYS - settings.USER_KEYS == set(), "decide who may set these (cli/settings.py)"
    assert (settings.PROJECT_KEYS | settings.USER_KEYS) - keys == set(), "these are options of no command"
    assert settings.TRUSTED_KEYS <= settings.PROJECT_KEYS


def test_rules_from_a_file_that_others_can_write_are_not_used(project: Path) -> None:
    path = project / ".nccl-triage.yaml"
    path.write_text("rules: [evil]\njobs: 2\n")
    path.chmod(0o666)
    result = CliRunner().invoke(cli, ["diagnose", "trainer.log"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert f"{path}:1: rules is not used: others than you can write {path}" in result.output
    assert origin("jobs")[0] == 2
    path.chmod(0o644)
    assert origin("rules")[0] == [str(project / "evil")]
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


def test_configured_values_are_used(project: Path) -> None:
    (project / ".nccl-triage.yaml").write_text("format: json\nlang: zh\n")
    result = CliRunner().invoke(cli, ["trainer.log"], catch_exceptions=False)
    assert json.loads(result.stdout)["diagnoses"][0]["cause"] == "gpu-out-of-memory"
    assert "显存" in CliRunner().invoke(cli, ["trainer.log", "--format", "text"]).stdout


def test_help_speaks_the_configured_language_and_bears_a_broken_file(project: Path) -> None:
    path = project / ".nccl-triage.yaml"
    path.write_text("lang: zh\n")
    assert "选项" in CliRunner().invoke(cli, ["diagnose", "--help"]).stdout
    assert "Options" in CliRunner().invoke(cli, ["diagnose", "--help", "--lang", "en"]).stdout
    assert "Options" in CliRunner().invoke(cli, ["diagnose", "--help", "--no-config"]).stdout
    path.write_text("lang: [\n")
    for words in (["--help"], ["diagnose", "--help"], ["--version"]):
        assert CliRunner().invoke(cli, words).exit_code == 0


def test_show_config_of_everything(project: Path, user: Path) -> None:
    user.write_text("verify:\n  budget: 30\n")
    (project / ".nccl-triage.yaml").write_text("lang: en\n")
    result = CliRunner().invoke(cli, ["--show-config"], catch_exceptions=False)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"configuration files, first to last: {project / '.nccl-triage.yaml'}, {user}"
    for words in every_command():
        assert f"nccl-triage {' '.join(words)}" in lines
    assert [line.split() for line in lines if "budget" in line and str(user) in line] == [
        ["budget", "30.0", f"{user}:2"]
    ]
    document = json.loads(CliRunner().invoke(cli, ["--show-config=json"]).stdout)
    assert document["files"] == [str(project / ".nccl-triage.yaml"), str(user)]
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
