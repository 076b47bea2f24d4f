"""A configuration file that was merely found decides nothing until the user has allowed what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nccl_triage.cli import cli, config_files, configuration, consent
from nccl_triage.errors import EXIT_OK, EXIT_USAGE, TriageError, UsageError

ROOT = Path(__file__).parents[2]
OOM = "step 3 loss 2.1\n[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
RULE = """program: site
signatures:
  - id: site.oom
    kind: node.lost
    role: root
    pattern: 'CUDA out of memory'
    meaning: Their own words.
    match: ['CUDA out of memory']
    not: ['all is well']
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that was unpacked, with a log, rules and a configuration of its own; the current folder."""
    for name in list(os.environ):
        if name.startswith(("NCCL_TRIAGE_", "XDG_", "LANG", "LC_")) and name != "XDG_CACHE_HOME":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NCCL_TRIAGE_HISTORY", "off")
    (tmp_path / "home").mkdir()
    found = tmp_path / "unpacked"
    (found / "site" / "signatures").mkdir(parents=True)
    (found / "site" / "signatures" / "x.yaml").write_text(RULE)
    (found / "job.log").write_text(OOM)
    (found / ".nccl-triage.yaml").write_text("lang: zh\nrules: [site]\n")
    monkeypatch.chdir(found)
    return found


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), catch_exceptions=False)


def speaks(*words: str) -> bool:
    """Tell whether the configuration of the folder takes part."""
    result = invoke("diagnose", "job.log", *words)
    assert result.exit_code == EXIT_OK, result.output
    assert ("site.oom" in result.stdout) == ("显存" in result.stdout)
    return "site.oom" in result.stdout


def notes(*words: str) -> list[str]:
    return [line for line in invoke("diagnose", "job.log", *words).stderr.splitlines() if "ignored" in line]


def test_a_file_that_was_found_counts_once_it_is_allowed(folder: Path) -> None:
    path = folder / ".nccl-triage.yaml"
    assert not speaks()
    (note,) = notes()
    assert note == (
        f"nccl-triage: {path} is ignored until you allow it; read it, then: nccl-triage config allow {path} (or config deny)"
    )
    assert notes("-q") == []
    shown = invoke("config", "allow").stdout
    assert shown == f"allowed: {path}\n  lang: zh\n  rules: site\n"
    assert speaks()
    assert notes() == []
    assert invoke("config", "list").stdout == f"allowed: {path}\n"


@pytest.mark.parametrize("change", ["file", "rule", "more-rules", "place"])
def test_what_changes_is_to_be_allowed_again(folder: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke("config", "allow", str(folder))
    assert speaks()
    if change == "file":
        (folder / ".nccl-triage.yaml").write_text("lang: zh\nrules: [site]\njobs: 2\n")
    elif change == "rule":
        (folder / "site" / "signatures" / "x.yaml").write_text(RULE.replace("Their own", "Other"))
    elif change == "more-rules":
        (folder / "site" / "signatures" / "y.yaml").write_text(RULE.replace("site.oom", "site.more"))
    else:
        folder.rename(folder.with_name("elsewhere"))
        monkeypatch.chdir(folder.with_name("elsewhere"))
    assert not speaks()
    assert len(notes()) == 1
    assert ("has changed since you allowed it" in notes()[0]) == (change != "place")


def test_comments_and_another_way_to_the_folder_change_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke("config", "allow", ".nccl-triage.yaml")
    (folder / ".nccl-triage.yaml").write_text("# ours\nlang: zh\nrules: [site]\n")
    assert speaks()
    folder.with_name("link").symlink_to(folder)
    monkeypatch.chdir(folder.with_name("link"))
    assert speaks()


def test_a_model_that_a_file_names_is_part_of_what_is_allowed(folder: Path) -> None:
    (folder / "m.json").write_text("{}")
    (folder / ".nccl-triage.yaml").write_text("model: m.json\n")
    layer = configuration.named(folder / ".nccl-triage.yaml")
    before = consent.digest(layer)
    (folder / "m.json").write_text('{"a": 1}')
    assert consent.digest(layer) != before


@pytest.mark.parametrize("denied", [False, True])
def test_a_file_that_does_not_count_hides_none_above_it(
    folder: Path, denied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.parent / ".git").mkdir()
    above = folder.parent / ".nccl-triage.yaml"
    above.write_text("redact: true\n")
    invoke("config", "allow", str(above))
    if denied:
        invoke("config", "deny")
    found = invoke("diagnose", "--show-config=json")
    assert json.loads(found.stdout)["files"] == [str(above)]
    assert len(notes()) == (not denied)
    invoke("config", "allow")
    assert json.loads(invoke("diagnose", "--show-config=json").stdout)["files"] == [str(folder / ".nccl-triage.yaml")]


def test_show_config_says_what_is_ignored(folder: Path) -> None:
    for words in (["--show-config"], ["diagnose", "--show-config"]):
        result = invoke(*words)
        assert result.stdout.startswith("no configuration file\n")
        assert result.stderr.count("is ignored until you allow it") == 1
    assert "ignored" not in invoke("--show-config", "--no-config").stderr


def test_what_is_denied_is_never_told_of_again(folder: Path) -> None:
    path = folder / ".nccl-triage.yaml"
    assert invoke("config", "deny").stdout == f"denied: {path}\n"
    path.write_text("lang: zh\nrules: [site]\njobs: 3\n")
    assert not speaks()
    assert notes() == []
    invoke("config", "allow")
    assert speaks()


def test_a_flag_or_a_variable_names_a_file_for_one_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert speaks("--config", ".nccl-triage.yaml")
    assert speaks("--config=.nccl-triage.yaml")
    assert not speaks()
    assert "显存" in invoke("--config", ".nccl-triage.yaml", "job.log").stdout
    monkeypatch.setenv("NCCL_TRIAGE_CONFIG", ".nccl-triage.yaml")
    assert speaks()
    assert not speaks("--no-config")
    (folder / "other.yaml").write_text("output: /tmp/evil\n")
    with pytest.raises(UsageError, match="may not be set by a file of the project"):
        CliRunner().invoke(cli, ["job.log", "--config", "other.yaml"], catch_exceptions=False, standalone_mode=False)


def test_the_users_own_file_needs_no_consent(folder: Path) -> None:
    own = folder.parent / "home" / ".config" / "nccl-triage" / "config.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("lang: zh\n")
    assert "显存" in invoke("job.log").stdout


@pytest.mark.parametrize("word", ["false", "False", "no", "off", "0"])
def test_redact_is_turned_on_and_never_off(folder: Path, word: str) -> None:
    own = folder.parent / "home" / ".config" / "nccl-triage" / "config.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("redact: true\n")
    path = folder / ".nccl-triage.yaml"
    path.write_text(f"redact: {word}\ndiagnose:\n  redact: {word}\n")
    invoke("config", "allow")
    for words in ([], ["--config", str(path)]):
        result = invoke("diagnose", "job.log", "--show-config=json", *words)
        assert json.loads(result.stdout)["commands"]["diagnose"]["redact"]["value"] is True
        assert f"{path}:1: redact is not used: a file of the project can turn it on, not off" in result.stderr
    own.unlink()
    path.write_text("redact: true\n")
    invoke("config", "allow")
    assert (
        json.loads(invoke("diagnose", "--show-config=json").stdout)["commands"]["diagnose"]["redact"]["value"] is True
    )


@pytest.mark.parametrize("exposed", ["site", "site/signatures", "site/signatures/x.yaml", ".nccl-triage.yaml"])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_rules_that_others_can_write_are_not_used(folder: Path, exposed: str, mode: int) -> None:
    invoke("config", "allow")
    path = folder / exposed
    path.chmod(path.stat().st_mode | mode)
    result = invoke("diagnose", "job.log", "--lang", "en")
    assert f"rules is not used: others than you can write {path}" in result.stderr
    assert "site.oom" not in result.stdout
    path.chmod(path.stat().st_mode & ~0o022)
    assert speaks()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to somebody else")
def test_rules_of_somebody_else_are_not_used(folder: Path) -> None:
    invoke("config", "allow")
    os.chown(folder / "site" / "signatures" / "x.yaml", 65534, -1)
    assert "rules is not used" in invoke("diagnose", "job.log", "--lang", "en").stderr


def test_what_is_no_regular_file_is_not_read(folder: Path) -> None:
    path = folder / ".nccl-triage.yaml"
    path.unlink()
    path.symlink_to("/dev/zero")
    os.mkfifo(folder / "setup.cfg")
    (folder / "pyproject.toml").symlink_to(folder / "setup.cfg")
    started = time.monotonic()
    result = invoke("diagnose", "job.log")
    assert result.exit_code == EXIT_OK
    assert time.monotonic() - started < 20
    for name in (".nccl-triage.yaml", "setup.cfg", "pyproject.toml", "."):
        with pytest.raises(UsageError, match="cannot read") as refused:
            configuration.read(name)
        assert refused.value.exit_code == EXIT_USAGE


LONG = configuration.MAX_SIZE
BOMBS = {
    "deep.yaml": "a: " + "[" * 20_000,
    "mappings.yaml": "a: " + "{a: " * 15 + "1" + "}" * 15,
    "long.yaml": "jobs: " + "9" * 100_000,
    "keys.yaml": "\n".join(f"k{number}: 1" for number in range(9_000)),
    "broken.yaml": "a: b: c",
    "deep.toml": "[tool.nccl-triage]\na = " + "[" * 20_000,
    "tables.toml": "[tool.nccl-triage]\na = " + "{a=" * 20_000,
    "dotted.toml": "[tool.nccl-triage]\n" + ".".join("a" * 20_000) + " = 1",
    "dotted-often.toml": "[tool.nccl-triage]\n" + "\n".join(f"k{n}" + ".a" * 32 + " = 1" for n in range(LONG // 86)),
    "header.toml": "[tool.nccl-triage." + ".".join("a" * 20_000) + "]\na = 1",
    "digits.toml": "[tool.nccl-triage]\njobs = " + "9" * 100_000,
    "base16.toml": "[tool.nccl-triage]\njobs = 0x" + "9" * 100_000,
    "keys.toml": "[tool.nccl-triage]\n" + "\n".join(f"k{number} = 1" for number in range(9_000)),
    "header.cfg": "[nccl-triage." + ".".join("a" * 20_000) + "]\na = 1",
    "keys.cfg": "[nccl-triage]\n" + "\n".join(f"k{number} = 1" for number in range(9_000)),
    "brackets.cfg": "[nccl-triage]\na = 1\n" + "[" * 100_000,
    "large.yaml": "#" * (LONG + 1),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_made_to_be_too_much_ends_in_a_sentence(folder: Path, name: str) -> None:
    kind = {".yaml": ".nccl-triage.yaml", ".toml": "pyproject.toml", ".cfg": "setup.cfg"}[Path(name).suffix]
    (folder / ".nccl-triage.yaml").unlink()
    path = folder / kind
    path.write_text(BOMBS[name])
    started = time.process_time()
    # Found: one note, and the log is diagnosed.
    result = invoke("diagnose", "job.log", "--lang", "en")
    assert result.exit_code == EXIT_OK
    assert "gpu-out-of-memory" in result.stdout
    (note,) = [line for line in result.stderr.splitlines() if str(path) in line] or [""]
    assert "not a valid configuration, ignored" in note or "is ignored until you allow it" in note
    assert len(note) < 1000
    # Named, or to be allowed: an error. Nothing is wrong with some before their keys are looked at.
    for words in (["config", "allow", str(path)], ["job.log", "--config", str(path)]):
        refused = CliRunner().invoke(cli, words, standalone_mode=False)
        if "is ignored until" not in note:
            assert isinstance(refused.exception, TriageError), (words, refused.output)
        assert refused.exception is None or isinstance(refused.exception, TriageError)
    assert time.process_time() - started < 20


def test_a_broken_file_elsewhere_stops_nobody(folder: Path) -> None:
    (folder / ".nccl-triage.yaml").write_text("jobs: [\n")
    result = invoke("diagnose", "job.log")
    assert result.exit_code == EXIT_OK
    assert f"{folder / '.nccl-triage.yaml'}:2: not a valid configuration, ignored (not valid YAML: " in result.stderr


def test_a_long_and_deep_configuration_has_bounds() -> None:
    with pytest.raises(UsageError):
        config_files.read_toml(Path("x"), "[tool.nccl-triage]\n" + "a." * config_files.MAX_DEPTH + "a.a = 1\n")
    lines = "\n".join(f"k{number} = 1" for number in range(config_files.MAX_KEYS))
    assert len(config_files.read_toml(Path("x"), f"[tool.nccl-triage]\n{lines}\n")[()]) == config_files.MAX_KEYS


@pytest.mark.parametrize("damage", ["", "{}", "[]", "null", '{"path": 1}', "[" * 10_000])
def test_a_damaged_answer_is_none(folder: Path, damage: str) -> None:
    invoke("config", "allow")
    kept = consent.folder()
    assert kept is not None
    (answer,) = kept.iterdir()
    assert answer.stat().st_mode & 0o077 == 0
    answer.write_text(damage)
    assert not speaks()
    assert "until you allow it" in notes()[0]


def test_an_answer_that_somebody_else_can_write_is_none(folder: Path) -> None:
    invoke("config", "allow")
    (answer,) = (consent.folder() or folder).iterdir()
    answer.chmod(0o666)
    assert not speaks()


def test_no_escape_sequence_of_a_file_is_printed(folder: Path) -> None:
    (folder / ".nccl-triage.yaml").write_text('rules: ["\\e[2Jx\\u202e"]\ncorpus: "a\\e]0;b\\a"\n')
    shown = [invoke("config", "allow"), invoke("diagnose", "job.log", "--show-config"), invoke("--show-config")]
    shown += [invoke("diagnose", "--show-config=json"), invoke("rules", "list", "--show-config")]
    for result in shown:
        assert result.exit_code == EXIT_OK
        assert not set(result.output) & set("\x1b\x07\u202e")


def test_sigterm_ends_a_run_with_slow_rules_of_a_folder(folder: Path) -> None:
    (folder / "site" / "signatures" / "x.yaml").write_text(
        RULE.replace("CUDA out of memory'\n    m", "CUDA (?:a|aa)+$'\n    m")
    )
    (folder / "job.log").write_text("".join(f"CUDA {'a' * (3000 + n)}b\n" for n in range(2000)))
    process = subprocess.Popen(
        [sys.executable, "-m", "nccl_triage", "job.log", "--rules", "site"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "analyzer")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(2)
    process.terminate()
    assert process.wait(timeout=30) in (0, 143)
