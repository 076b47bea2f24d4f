"""Completion: the answers, and the scripts in real shells."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nccl_triage.cli import COMMANDS, cli, completion
from nccl_triage.engine.schema import RuleSet

ROOT = Path(__file__).parents[2]


def answers(*words: str) -> list[tuple[str, str]]:
    """Return kind and value of each answer."""
    lines = completion.answer(cli, list(words)).splitlines()
    return [(kind, value) for kind, value, _ in (line.split("\t") for line in lines)]


def values(*words: str) -> list[str]:
    return [value for kind, value in answers(*words) if kind == "plain"]


def test_the_first_word_is_a_command_or_a_file() -> None:
    assert answers("") == [*(("plain", name) for name in COMMANDS), ("file", "")]
    assert answers("ex") == [("plain", "explain"), ("file", "ex")]
    assert answers("no-such") == [("file", "no-such")]


def test_words_behind_a_file_are_those_of_the_default_command() -> None:
    assert ("file", "x") in answers("trainer.log", "x")
    assert "--format" in values("trainer.log", "--fo")
    assert "--format" in values("--fo")
    assert "--version" in values("--ver")
    assert len(values("--")) == len(set(values("--")))


@pytest.mark.parametrize(
    "words",
    [
        ["--format", "js"],
        ["--format=js"],
        ["--format", "=", "js"],  # as bash splits it
        ["diagnose", "x.log", "--format", "js"],
        ["diagnose", "--quiet", "--format=js"],
    ],
)
def test_values_of_options(words: list[str]) -> None:
    assert values(*words) == ["json"]


def test_further_values() -> None:
    assert values("--lang", "") == ["auto", "en", "zh"]
    assert "html" in values("--format", "=")
    assert values("verify", "--launcher", "s") == ["slurm"]
    assert answers("verify", "--workdir", "x") == [("dir", "x")]
    assert answers("diagnose", "--report", "x") == [("file", "x")]
    assert values("completion", "") == ["bash", "zsh", "fish"]
    assert values("rules", "") == ["list", "show", "test"]
    assert "--kind" in values("rules", "list", "--")


def test_words_of_another_command() -> None:
    assert answers("run", "torch") == [("command", "torch")]
    assert answers("run", "--", "torchrun", "--n") == [("file", "--n")]
    assert "--logs" in values("run", "--l")


def test_every_id_is_offered_without_reading_yaml(rules: RuleSet) -> None:
    shown = {*rules.causes, *rules.signatures, *rules.prefixes.rows, *rules.layouts.rows}
    assert values("rules", "show", "") == sorted(shown)
    assert {*rules.causes, *rules.signatures, "NCCL_IB_HCA", "cudaErrorMemoryAllocation"} <= set(values("explain", ""))
    assert values("explain", "nccl_ib_hc") == ["NCCL_IB_HCA"]
    assert values("rules", "show", "nccl.duplicate_g") == ["nccl.duplicate_gpu"]


def test_topics_are_offered() -> None:
    from nccl_triage.cli import completion
    from nccl_triage.knowledge import lookup

    assert sorted(lookup.TOPICS) == sorted(completion.TOPICS)
    assert "symptoms" in values("explain", "sym")
    assert "timeouts" in values("explain", "timeo")
    assert "hang" in values("explain", "han")


def test_ids_of_rules_of_the_user(tmp_path: Path) -> None:
    folder = tmp_path / "signatures" / "site"
    folder.mkdir(parents=True)
    (folder / "a.yaml").write_text("program: site\nsignatures:\n  - id: site.rack_down\n    role: root\n")
    assert values("rules", "show", "--rules", str(tmp_path), "site.") == ["site.rack_down"]
    assert values("rules", "show", "site.") == []


def test_answers_have_one_line_each_and_a_meaning_in_the_language() -> None:
    lines = completion.answer(cli, ["--lang", "zh", "diagnose", "--repo"]).splitlines()
    assert lines == ["plain\t--report\t另外把 HTML 报告写入该文件。"]


def test_a_key_press_imports_little(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom nccl_triage.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "analyzer"), completion.VARIABLE: "bash"}
    command = [sys.executable, "-c", program, "explain", "gpu-out"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=60)
    assert result.stdout == "plain\tgpu-out-of-memory\t\n"
    heavy = ("yaml", "nccl_triage.engine", "nccl_triage.scan", "nccl_triage.render", "orjson", "jinja2", "hyperscan")
    assert not [name for name in result.stderr.split() if name.startswith(heavy)]


# real shells


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files, and our command on the way to it."""
    work = tmp_path / "work"
    (work / "rank_logs").mkdir(parents=True)
    (work / "trainer.log").touch()
    (work / "two words.log").touch()
    program = tmp_path / "bin" / "nccl-triage"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "analyzer"} exec {sys.executable} -m nccl_triage "$@"\n')
    program.chmod(0o755)
    return work


def _environment(folder: Path) -> dict[str, str]:
    path = f"{folder.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LANG", "LC_", "NCCL_TRIAGE"))}
    return {
        **kept,
        "PATH": path,
        "TERM": "dumb",
        "HOME": str(folder.parent),
        "PS1": "> ",
        "ZDOTDIR": str(folder.parent),
    }


class Terminal:
    """A shell on a terminal, in which keys are pressed."""

    def __init__(self, command: list[str], folder: Path, setup: str) -> None:
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, _environment(folder))
        self.send(f"{setup}; echo REA''DY\n")
        self.until("READY", 60)

    def send(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    def until(self, wanted: str, seconds: float) -> str:
        """Return what has been printed once ``wanted`` is in it, or after some seconds."""
        seen, end = "", time.monotonic() + seconds
        while wanted not in seen and time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.1)[0]:
                seen += os.read(self.terminal, 65536).decode("utf-8", "replace").replace("\a", "")
        return seen

    def completes(self, typed: str, wanted: str) -> bool:
        """Tell whether Tab turns what was typed into ``wanted``; the line is removed again."""
        self.send(f"{typed}\t")
        seen = self.until(wanted, 20)
        self.send("\x15")
        self.until("\0", 0.3)
        return wanted in seen

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        os.close(self.terminal)
        os.waitpid(self.process, 0)


#: What is typed, and what the line is after Tab.
TYPED = [
    ("nccl-triage exp", "lain "),
    ("nccl-triage trai", "ner.log"),
    ("nccl-triage two", "two\\ words.log"),
    ("nccl-triage --format=js", "on "),
    ("nccl-triage render --format=sa", "rif "),
    ("nccl-triage explain duplicate-g", "pu "),
    ("nccl-triage verify --workdir ra", "nk_logs/"),
    ("nccl-triage rank", "_logs/"),
    ("nccl-triage run -- nccl-tri", "age "),
]


def test_bash(folder: Path) -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    setup = 'bind "set enable-bracketed-paste off"; eval "$(nccl-triage completion bash)"'
    shell = Terminal(["bash", "--norc", "--noprofile", "-i"], folder, setup)
    try:
        for typed, wanted in TYPED:
            assert shell.completes(typed, wanted), typed
    finally:
        shell.close()


def test_zsh(folder: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    setup = "autoload -Uz compinit; compinit -u -D; source <(nccl-triage completion zsh)"
    shell = Terminal(["zsh", "-f", "-i"], folder, setup)
    try:
        for typed, wanted in TYPED:
            assert shell.completes(typed, wanted), typed
    finally:
        shell.close()


def test_zsh_from_a_folder_of_functions(folder: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    functions = folder.parent / "functions"
    functions.mkdir()
    script = (ROOT / "analyzer" / "nccl_triage" / "cli" / "completion.zsh").read_text()
    (functions / "_nccl-triage").write_text(script)
    setup = f"fpath=({functions} $fpath); autoload -Uz compinit; compinit -u -D"
    shell = Terminal(["zsh", "-f", "-i"], folder, setup)
    try:
        assert shell.completes("nccl-triage exp", "lain ")
        assert shell.completes("nccl-triage rul", "es ")  # the first use loads the function, the second has it
    finally:
        shell.close()


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("nccl-triage exp", ["explain"]),
        ("nccl-triage trai", ["trainer.log"]),
        ("nccl-triage --format=js", ["--format=json"]),
        ("nccl-triage explain duplicate-g", ["duplicate-gpu"]),
        ("nccl-triage verify --workdir ", ["rank_logs/"]),
        ("nccl-triage verify --workdir=ra", ["--workdir=rank_logs/"]),
        ("nccl-triage rules list --kind ", ["causes", "signatures", "prefixes", "layouts", "all"]),
        ("nccl-triage run -- nccl-tri", ["nccl-triage"]),
    ],
)
def test_fish(folder: Path, typed: str, wanted: list[str]) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    command = ["fish", "--no-config", "-c", f"nccl-triage completion fish | source; complete -C '{typed}'"]
    result = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=_environment(folder), timeout=120, check=True
    )
    assert sorted(line.split("\t")[0] for line in result.stdout.splitlines()) == sorted(wanted)


def test_scripts_are_correct_shell() -> None:
    for shell in ("bash", "zsh", "fish"):
        if shutil.which(shell) is None:
            continue
        path = ROOT / "analyzer" / "nccl_triage" / "cli" / f"completion.{shell}"
        subprocess.run([shell, "-n", str(path)], check=True, timeout=60)
