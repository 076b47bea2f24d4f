"""The first code of nccl-triage.pyz that runs: choose a folder, unpack there what is for this Python, go on with shiv.

One file carries the compiled parts of all Pythons and machines, and a run unpacks its own. shiv alone would unpack them
all, into ~/.shiv, which cannot be written in a broken container. Where SHIV_ROOT is set, that is the folder.

Python 3.6 can read this module, since older ones than those that we support have to be told so.
"""

import json
import os
import shutil
import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

#: How names of compiled parts end, whatever Python they are for, and for which this one takes them, such as
#: ``cpython-312-x86_64-linux-gnu``.
COMPILED = ".so"
OURS = EXTENSION_SUFFIXES[0][1 : -len(COMPILED)]
#: Programs of one machine: ``site-packages/programs/x86_64/py-spy``.
PROGRAMS = "programs"
MACHINE = os.uname().machine
#: The variable that tells shiv where to unpack, and what it is set to outside.
ROOT = "SHIV_ROOT"
_CHOSEN = os.environ.get(ROOT)


class Archive(zipfile.ZipFile):
    """An archive that shows what this Python can use."""

    def infolist(self) -> "list[zipfile.ZipInfo]":
        """Return the entries that are not compiled, and those that are compiled for this Python or machine."""
        return [entry for entry in self.filelist if _made_for(entry.filename) in ("", OURS, MACHINE)]


def start() -> None:
    """Unpack, unless an earlier run did, and start the command line."""
    # Python does not know its own path where there is no PATH, as in an epilog; the processes that we start need it.
    sys.executable = sys.executable or str(Path("/proc/self/exe").resolve())
    with Archive(sys.argv[0]) as archive:
        carried = sorted(name for name in set(map(_made_for, archive.namelist())) if "-" in name)
        if OURS not in carried:
            _give_up(
                f"this file has no compiled parts for {OURS}",
                "it has those for {}".format(", ".join(carried)),
                f"another Python: python3.12 {sys.argv[0]}",
            )
        site, os.environ[ROOT] = _unpacked(archive)
    # First of all: the container may have others of these packages, broken or old, which shiv would put before ours.
    sys.path.insert(0, site)
    if sys.argv[1:2] == ["hang"]:
        # It looks for py-spy on PATH; that of this host comes first.
        programs = str(Path(site, PROGRAMS, MACHINE))
        os.environ["PATH"] = os.pathsep.join(filter(None, (os.environ.get("PATH", os.defpath), programs)))
    # Images often forbid it, for folders that stay in them; without it a start takes twice as long.
    sys.dont_write_bytecode = False
    import _bootstrap  # type: ignore[import-not-found]

    _bootstrap.bootstrap()


def run() -> None:
    """Run the command line; shiv calls this at last. What we start must not see the variable."""
    if _CHOSEN is None:
        os.environ.pop(ROOT)
    from nccl_triage.__main__ import run as command_line

    command_line()


def _made_for(name: str) -> str:
    """Return the Python that a module is compiled for, or the machine of a program, or nothing if it is for any."""
    if name.startswith(f"site-packages/{PROGRAMS}/"):
        return name.split("/")[2]
    tag = Path(name).name.partition(".")[2]
    return tag[: -len(COMPILED)] if tag.startswith("cpython-") and tag.endswith(COMPILED) else ""


def _unpacked(archive: Archive) -> "tuple[str, str]":
    """Return the folder of the packages, and shiv's root."""
    import _bootstrap

    build = json.loads(archive.read("environment.json").decode())["build_id"]
    reason = "no folder of yours can be written"
    for root in [_CHOSEN] if _CHOSEN else _roots():
        target = _bootstrap.cache_path(archive, root, build)
        try:
            if not _whole(archive, target):
                _bootstrap.extract_site_packages(archive, target, force=target.exists())
        except OSError as error:
            reason = str(error)
            shutil.rmtree(str(target) + ".tmp", ignore_errors=True)  # where shiv unpacks to first
        else:
            return str(target / "site-packages"), root
    return _give_up(
        "nothing can be unpacked", reason, "SHIV_ROOT=FOLDER, where programs may run and only you may write"
    )


def _roots() -> "Iterator[str]":
    """Yield folders that this user alone can change, the home first."""
    import cache_folders  # type: ignore[import-not-found]

    home = cache_folders.at_home()
    ours = [home] if home is not None and cache_folders.make(home) and cache_folders.is_ours(home) else []
    for folders in (ours, cache_folders.temporary()):
        for folder in folders:
            if cache_folders.runs_programs(folder):
                yield str(folder / "pyz" / OURS)


def _whole(archive: Archive, target: Path) -> bool:
    """Tell whether all files are there: what cleans temporary files and scratch folders deletes some of them."""
    there = {
        str(Path(folder, name).relative_to(target))
        for folder, _, names in os.walk(str(target))
        if not folder.endswith("__pycache__")
        for name in names
    }
    return all(entry.filename in there for entry in archive.infolist() if entry.filename.startswith("site-packages/"))


def _give_up(error: str, cause: str, remedy: str) -> "NoReturn":
    sys.stderr.write(f"error: {error}\ncause: {cause}\ntry: {remedy}\n")
    sys.exit(2)
