"""Compile the stand-ins and find NCCL's wheels; scenarios call this in a node's prelude.

``eval $(python build.py 2.21.5)`` exports NCCL_LIBRARY and LD_LIBRARY_PATH; ``python build.py --fetch`` gets the
wheels. They are those for CUDA 11, whose runtime takes any driver that has the functions; each lies in a folder of its
own because two versions of a package cannot lie in one environment.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("NCCL_TRIAGE_CORPUS_CACHE", "~/.cache/nccl-triage-corpus")).expanduser()
VERSIONS = ("2.18.3", "2.19.3", "2.20.5", "2.21.5")
PACKAGE = "nvidia-nccl-cu11"
#: Where a node (in its own mount namespace) finds a network plugin.
PLUGIN_FOLDER = "/mnt/fabric/lib"
#: Wheels for CUDA 12, with which only failures that need no device can be shown.
DRIVERLESS_VERSIONS = ("2.27.5",)


def library(version: str) -> Path:
    """Return where NCCL's library of a version lies once it was fetched."""
    return CACHE / f"nccl-{version}" / "nvidia" / "nccl" / "lib" / "libnccl.so.2"


def fetch(version: str) -> None:
    """Get a version's wheel through pip."""
    package = PACKAGE if version in VERSIONS else "nvidia-nccl-cu12"
    target = str(CACHE / f"nccl-{version}")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", target, f"{package}=={version}"],
        check=True,
    )


def _driver_functions() -> list[str]:
    """Return the names of all driver functions that some version's CUDA runtime looks up."""
    names: set[str] = set()
    for version in VERSIONS:
        if library(version).exists():
            found = re.findall(rb"\0(cu[A-Z][A-Za-z0-9_]{3,60})(?=\0)", library(version).read_bytes())
            names |= {name.decode() for name in found}
    return sorted(names)


def _stubs() -> str:
    """Return C code in which every driver function says that it is not supported; cuda_double.c overrides many."""
    lines = ["#include <stdio.h>", "#include <stdlib.h>"]
    lines += [
        f"__attribute__((weak)) int {name}(void)"
        f' {{ if (getenv("CUDA_DOUBLE_TRACE")) fprintf(stderr, "[{name}]\\n"); return 801; }}'
        for name in _driver_functions()
    ]
    return "\n".join(lines) + "\n"


def _compile(output: Path, *sources: Path | str) -> None:
    # Unused parameters and aliases of other types are the nature of a stand-in: no warnings.
    command = ["cc", "-shared", "-fPIC", "-O1", "-w", f"-Wl,-soname,{output.name}", "-o", str(output)]
    subprocess.run([*command, *map(str, sources)], check=True)


def _once(name: str, key: bytes, make: Callable[[Path], None]) -> Path:
    """Return the folder of the cache that ``make`` fills, made anew if the key has changed."""
    folder = CACHE / f"{name}-{hashlib.sha256(key).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as partial:
        made = Path(partial) / "made"
        made.mkdir()
        make(made)
        try:
            made.rename(folder)
        except OSError:
            # Another process was faster.
            if not folder.is_dir():
                raise
    return folder


def stand_ins() -> Path:
    """Return the folder with libcuda.so.1 and libnvidia-ml.so.1, compiled if the sources have changed."""
    cuda, nvml = HERE / "cuda_double.c", HERE / "nvml_double.c"

    def make(folder: Path) -> None:
        stubs = folder / "stubs.c"
        stubs.write_text(_stubs())
        _compile(folder / "libcuda.so.1", cuda, stubs)
        # The name without a version is what older releases of NCCL look for.
        (folder / "development").mkdir()
        (folder / "development" / "libcuda.so").symlink_to("../libcuda.so.1")
        _compile(folder / "libnvidia-ml.so.1", nvml)

    there = " ".join(version for version in VERSIONS if library(version).exists())
    return _once("driver-3", cuda.read_bytes() + nvml.read_bytes() + there.encode(), make)


def plugin(kind: str) -> Path:
    """Return the folder with a libnccl-net.so that fails in one of the ways of net_plugin.c."""
    source = HERE / "net_plugin.c"
    return _once(f"plugin-{kind}", source.read_bytes(), lambda f: _compile(f / "libnccl-net.so", source, f"-D{kind}"))


def lacks() -> str | None:
    """Return why recordings with the stand-ins are not possible, or None when they are."""
    absent = [version for version in (*VERSIONS, *DRIVERLESS_VERSIONS) if not library(version).exists()]
    if absent:
        return f"no NCCL wheel {absent[0]}: python corpus/scenarios/nccl_double/build.py --fetch"
    try:
        stand_ins()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"the stand-in for the CUDA driver cannot be compiled: {error}"
    return None


def main() -> None:
    """Fetch the wheels, or print what a node's shell must export."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", nargs="?", default=VERSIONS[-1], help="version of NCCL")
    parser.add_argument("--fetch", action="store_true", help="get the wheels of all versions")
    parser.add_argument("--without-driver", action="store_true", help="leave the stand-ins out")
    parser.add_argument(
        "--runtime-only", action="store_true", help="no libcuda.so without a version, as in many images"
    )
    parser.add_argument("--plugin", metavar="KIND", help="add a libnccl-net.so that fails in this way")
    options = parser.parse_args()
    if options.fetch:
        for version in (*VERSIONS, *DRIVERLESS_VERSIONS):
            if not library(version).exists():
                fetch(version)
        return
    folders = [] if options.without_driver else [str(stand_ins())]
    if folders and not options.runtime_only:
        folders.append(f"{folders[0]}/development")
    if options.plugin:
        # NCCL prints the path of a plugin: it gets one that any machine might have.
        print(f"mount -t tmpfs tmpfs /mnt; mkdir -p {PLUGIN_FOLDER}; cp {plugin(options.plugin)}/* {PLUGIN_FOLDER};")
        folders.append(PLUGIN_FOLDER)
    print(f"export NCCL_LIBRARY={library(options.version)} LD_LIBRARY_PATH={':'.join(folders)}")


if __name__ == "__main__":
    main()
