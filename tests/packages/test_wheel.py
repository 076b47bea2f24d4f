"""The wheel holds the rules, the templates and the schema; what is installed runs outside the checkout."""

from __future__ import annotations

import configparser
import datetime
import email
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from nccl_triage._version import __version__

from .sealed import ROOT

#: One worker builds the wheel.
pytestmark = pytest.mark.xdist_group("wheel")


def test_wheel_holds_every_data_file(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, patterns in (
        ("rules", ("*/*.yaml", "*/*/*.yaml", "schema/*.json")),
        ("reports", ("templates/*", "schema/*.json")),
    ):
        for pattern in patterns:
            files = [p for p in (ROOT / folder).glob(pattern) if p.is_file()]
            assert files, pattern
            for path in files:
                assert f"nccl_triage/{path.relative_to(ROOT).as_posix()}" in names
    assert {
        "nccl_triage/py.typed",
        *(f"nccl_triage/cli/completion.{shell}" for shell in ("bash", "zsh", "fish")),
        *(f"nccl_triage/messages/{path.name}" for path in (ROOT / "analyzer/nccl_triage/messages").glob("*.json")),
        "nccl_triage/classifier/model.json",
        "nccl_triage/classifier/examples.json.gz",
        "nccl_triage/similar/threads.json.gz",
    } <= names
    assert not [name for name in names if name.startswith(("tests/", "corpus/")) or "reports/examples" in name]


def test_every_package_is_listed(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in (ROOT / "analyzer").rglob("*.py"):
        assert path.relative_to(ROOT / "analyzer").as_posix() in names


def test_unpacked_wheel_diagnoses(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    log = tmp_path / "x.log"
    log.write_bytes((ROOT / "corpus" / "written" / "logs" / "S004-openrlhf-batch-size.log").read_bytes())
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        f"from nccl_triage import diagnose\nimport nccl_triage\nassert nccl_triage.__file__.startswith({str(tmp_path)!r})\n"
        f"print(diagnose({str(log)!r}).cause)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120
    )
    assert result.stdout.strip() == "batch-size-mismatch", result.stderr


def test_name_command_and_extras_are_those_that_people_install_by(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    read = {Path(name).name: archive.read(name).decode() for name in archive.namelist() if ".dist-info/" in name}
    about = email.message_from_string(read["METADATA"])
    assert (about["Name"], about["Version"], about["Requires-Python"]) == ("nccl-triage", __version__, ">=3.10")
    assert {"all", "hang", "mcp", "ray", "train", "verify"} <= set(about.get_all("Provides-Extra") or ())
    requires = about.get_all("Requires-Dist") or ()
    assert any("py-spy" in one and one.endswith('extra == "hang"') for one in requires)
    entries = configparser.ConfigParser()
    entries.read_string(read["entry_points.txt"])
    assert dict(entries["console_scripts"]) == {"nccl-triage": "nccl_triage.__main__:run"}
    assert wheel.name == f"nccl_triage-{__version__}-py3-none-any.whl"


def test_the_version_is_the_same_everywhere() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version, date = re.findall(r"^## (\S+) - (\S+)$", changes, re.MULTILINE)[0]
    assert version == __version__ and datetime.date.fromisoformat(date)
    for name in ("README.md", "README.zh.md"):
        assert f"nccl-triage-{__version__}.pyz" in (ROOT / name).read_text(encoding="utf-8")
    for name in ("pre-commit.md", "pre-commit/.pre-commit-config.yaml"):
        assert f"rev: v{__version__}\n" in (ROOT / "docs" / "integrations" / name).read_text(encoding="utf-8")
