"""The man pages: one a command, correct troff, and the same words as --help."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import click
import pytest

from nccl_triage.cli import every_command
from nccl_triage.cli.settings import options_of

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def man() -> ModuleType:
    spec = importlib.util.spec_from_file_location("man", ROOT / "docs" / "man.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(man: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    written: list[Path] = man.write(tmp_path_factory.mktemp("man"))
    return written


def test_every_command_has_a_page(pages: list[Path]) -> None:
    names = {"nccl-triage", *("-".join(("nccl-triage", *words)) for words in every_command())}
    assert {path.name for path in pages} == {f"{name}.1" for name in names}


def test_every_option_is_in_its_page(pages: list[Path]) -> None:
    by_name = {path.stem: path.read_text("utf-8") for path in pages}
    for words, command in every_command().items():
        text = by_name["-".join(("nccl-triage", *words))].replace("\\-", "-")
        for key in options_of(command):
            assert f"--{key}" in text, (words, key)
        assert ".SH EXAMPLES" in text


def test_troff_finds_nothing_to_obey_in_a_text(man: ModuleType) -> None:
    command = click.Command("x", help=".SH EVIL\n\nA \\fBword\\fR 'quoted' -- end.\n\n.so /etc/passwd", params=[])
    text = man.page(("x",), command, "2026-01-01")
    assert "\n.SH EVIL" not in text
    assert "\n.so" not in text
    assert "\\efBword\\efR" in text


def test_the_date_can_be_repeated(man: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert man.date_of_build() == "1970-01-02"


def test_mandoc_has_no_warning(pages: list[Path]) -> None:
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not installed")
    command = ["mandoc", "-Tlint", "-Wwarning", *map(str, pages)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.stdout + result.stderr == ""


def test_man_shows_them_without_warning(pages: list[Path]) -> None:
    if shutil.which("man") is None or shutil.which("groff") is None:
        pytest.skip("man or groff is not installed")
    for path in pages:
        command = ["man", "--warnings", "-l", str(path)]
        environment = {"LC_ALL": "C.UTF-8", "MANWIDTH": "80", "PATH": "/usr/bin:/bin", "MANPAGER": "cat"}
        result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)
        assert result.stderr == "", path.name
        assert "SYNOPSIS" in result.stdout
        assert "nccl-triage" in result.stdout
