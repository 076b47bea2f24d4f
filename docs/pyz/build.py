"""Make nccl-triage.pyz of a wheel: ``make pyz``. One file with all that it needs, for all Pythons and machines below.

Compiled modules are named after the Python and the machine that they are for, so the wheels of all of them fit into one
folder. shiv packs that folder; ``start.py`` beside this file takes from it what is for the Python that runs it.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import tempfile
import zipfile
from datetime import datetime, timezone
from pathlib import Path

import shiv
from shiv.bootstrap.environment import Environment
from shiv.builder import create_archive
from shiv.constants import BUILD_AT_TIMESTAMP_FORMAT, SOURCE_DATE_EPOCH_DEFAULT

HERE = Path(__file__).resolve().parent
MACHINES = ("x86_64", "aarch64")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
#: A program that ``nccl-triage hang`` runs, and how a wheel holds it. There is one for each machine.
PROGRAM = "py-spy>=0.4"
_SCRIPTS = ".data/scripts/"
#: What is left out: a backend for PyPy, tests, sources and types.
_UNUSED = ("zstandard/_cffi", "regex/tests/")
_SOURCES = (".pyi", ".pyx", ".pxd", ".c", ".h")
#: Where a wheel tells of itself, each its own.
_ABOUT = ".dist-info/"
_LOADED = 1  # PT_LOAD


def download(wheel: Path, folder: Path, python: str, machine: str, pins: list[str]) -> list[Path]:
    """Return the wheels that a wheel needs on a Python and a machine, and itself."""
    platforms = [f"--platform={name}_{machine}" for name in ("manylinux2014", "manylinux_2_28")]
    _pip(folder, f"--python-version={python}", *platforms, str(wheel), *pins)
    _pip(folder, *platforms, "--no-deps", PROGRAM)
    return sorted(folder.glob("*.whl"))


def _pip(folder: Path, *words: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, "--only-binary=:all:", "--dest", str(folder), *words], check=True)


def gather(wheels: list[Path], site: Path, machine: str) -> None:
    """Unpack wheels into a folder that may hold those of another Python. Raises ValueError where two cannot share it."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                name = entry.filename
                if entry.is_dir() or name.startswith(_UNUSED) or name.endswith(_SOURCES):
                    continue
                runs = _SCRIPTS in name
                data, target = archive.read(entry), site / (f"programs/{machine}/{Path(name).name}" if runs else name)
                if name.endswith(".so") or runs:
                    data = without_symbols(data)
                if not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(data)
                    target.chmod(0o755 if runs else 0o644)
                elif target.read_bytes() != data and _ABOUT not in name:
                    raise ValueError(f"{name} of {wheel.name} is not that of the other wheels")


def without_symbols(data: bytes) -> bytes:
    """Return an ELF library without what no loader reads: symbols and debugging information, most of some wheels.

    All that is loaded lies in segments; what follows the last of them is cut, with the table of sections (elf(5)).
    """
    if data[:6] != b"\x7fELF\x02\x01":
        return data
    (first,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    end = first + size * count
    for at in range(first, end, size):
        (kind,) = struct.unpack_from("<I", data, at)
        offset, length = (struct.unpack_from("<Q", data, at + place)[0] for place in (8, 32))
        if kind == _LOADED:
            end = max(end, offset + length)
    head = bytearray(data[:end])
    struct.pack_into("<Q", head, 40, 0)  # no table of sections
    struct.pack_into("<HHH", head, 58, 0, 0, 0)
    return bytes(head)


def pack(site: Path, target: Path) -> None:
    """Write the archive of a folder of packages. The same packages give the same bytes."""
    made = datetime.fromtimestamp(SOURCE_DATE_EPOCH_DEFAULT, timezone.utc).strftime(BUILD_AT_TIMESTAMP_FORMAT)
    about = Environment(
        built_at=made, shiv_version=shiv.__version__, entry_point="start.run", compile_pyc=False, reproducible=True
    )
    create_archive([site], target, "/usr/bin/env python3", "start:start", about)
    import nccl_triage.cache_folders

    with zipfile.ZipFile(target, "a", zipfile.ZIP_DEFLATED) as archive:
        for path in (HERE / "start.py", Path(nccl_triage.cache_folders.__file__)):
            archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)


def build(wheel: Path) -> Path:
    """Write the archive beside a wheel, and return its path."""
    name, version = wheel.name.split("-")[:2]
    target = wheel.with_name(f"{name.replace('_', '-')}-{version}.pyz")
    with tempfile.TemporaryDirectory() as folder:
        site, pins = Path(folder) / "site", list[str]()
        for machine in MACHINES:
            for python in PYTHONS:
                wheels = download(wheel, Path(folder) / f"{machine}-{python}", python, machine, pins)
                # The oldest Python decides: packages may have dropped it since, and one version must serve all.
                pins = pins or [_pinned(one) for one in wheels if not one.name.startswith((wheel.name, "py_spy-"))]
                gather(wheels, site, machine)
        pack(site, target)
    return target


def _pinned(wheel: Path) -> str:
    name, version = wheel.name.split("-")[:2]
    return f"{name}=={version}"


if __name__ == "__main__":
    made = build(Path(sys.argv[1]).resolve())
    print(f"{made} ({made.stat().st_size / 1e6:.0f} MB)")
