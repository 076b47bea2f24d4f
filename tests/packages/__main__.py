"""Try the wheel and the archive of a folder in fresh environments of each Python that is here: ``make dist``.

The wheel is installed by pip, and by pipx and uv where these are; then both diagnose a log without a network and
without a home. Exit code 1 if something fails; Pythons that are not here are named.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from nccl_triage._version import __version__

from . import sealed

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
#: Seconds of processor time that a start may take when it is not the first.
WARM = 0.5


def interpreter(version: str) -> str | None:
    """Return a Python of a version, from PATH, pyenv or uv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [f"python{version}", *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    if shutil.which("uv"):
        found = subprocess.run(["uv", "python", "find", version], capture_output=True, text=True, check=False)
        candidates += found.stdout.split("\n")[:1]
    told = f"import sys; {tuple(map(int, version.split('.')))} == sys.version_info[:2] and print(sys.executable)"
    for one in filter(shutil.which, candidates):
        found = subprocess.run([one, "-c", told], capture_output=True, text=True, check=False)
        if found.stdout:
            return found.stdout.strip()
    return None


def check(name: str, *command: str | Path) -> bool:
    """Tell whether a command knows its version and diagnoses a log, and print how long that takes."""
    with tempfile.TemporaryDirectory() as folder:
        version = sealed.run(*command, "--version", temporary=Path(folder))
        verdict = sealed.run(*command, sealed.LOG, temporary=Path(folder))
        took = sealed.spent(*command, sealed.LOG, temporary=Path(folder)) if verdict.returncode == 0 else 0.0
    wrong = []
    if version.stdout.split()[-1:] != [__version__]:
        wrong.append(f"--version: {version.stdout}{version.stderr}")
    if sealed.CAUSE not in verdict.stdout:
        wrong.append(f"diagnose: {verdict.stdout}{verdict.stderr}")
    if took > WARM:
        wrong.append("too slow")
    print(f"{'FAILED' if wrong else 'ok':8}{name:32}{took:.2f} s to start", *wrong)
    return not wrong


def installed(wheel: Path, python: str, folder: Path) -> dict[str, tuple[str, ...]]:
    """Install a wheel in each way that is here; return how the program is started then."""
    # Where our modules are on the path, pip takes the checkout for what is asked for.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([python, "-m", "venv", folder / "venv"], check=True, env=clean)
    subprocess.run([folder / "venv" / "bin" / "pip", "install", "--quiet", wheel], check=True, env=clean)
    found: dict[str, tuple[str, ...]] = {"pip": (str(folder / "venv" / "bin" / "nccl-triage"),)}
    variables = {name: str(folder / name) for name in ("PIPX_HOME", "PIPX_BIN_DIR", "UV_TOOL_DIR", "UV_TOOL_BIN_DIR")}
    for tool, words, place in (
        ("pipx", ("pipx", "install", "--quiet"), "PIPX_BIN_DIR"),
        ("uv", ("uv", "tool", "install", "--quiet"), "UV_TOOL_BIN_DIR"),
    ):
        if shutil.which(tool):
            subprocess.run([*words, "--python", python, wheel], env={**clean, **variables}, check=True)
            found[tool] = (str(folder / place / "nccl-triage"),)
    return found


def main(folder: Path) -> int:
    """Check the wheel and the archive of this version in a folder; return the exit code."""
    (wheel,), (archive,) = folder.glob(f"*-{__version__}-*.whl"), folder.glob(f"*-{__version__}.pyz")
    good, missing = True, []
    for version in PYTHONS:
        python = interpreter(version)
        if python is None:
            missing.append(version)
            continue
        with tempfile.TemporaryDirectory() as place:
            for tool, command in installed(wheel, python, Path(place)).items():
                good &= check(f"{wheel.suffix[1:]}, Python {version}, {tool}", *command)
        good &= check(f"{archive.suffix[1:]}, Python {version}", python, archive)
    if missing:
        print(f"not checked, since there is no such Python here: {', '.join(missing)}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
