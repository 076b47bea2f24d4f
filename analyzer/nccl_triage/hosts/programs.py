"""Programs as one file, and how they are started on a host that has no nccl-triage.

``python -c BOOT WORD...`` reads a line with a length and that many bytes, not one more (the commands follow on the same
pipe), and replaces itself by ``python FILE WORD...``. FILE has no name in any folder and is gone with the last process that
holds it.
"""

from __future__ import annotations

import importlib.resources
import io
import shlex
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Traversable

#: The same sources give the same bytes.
_DATE = (2020, 1, 1, 0, 0, 0)
#: The path comes first: what it lets in could be any other module.
_MAIN = """from nccl_triage.hosts import safe_path
safe_path.apply()
import sys
from {module} import main
sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class Program:
    """An archive that Python runs, its arguments, and more of them for hosts that share no folder with this one."""

    archive: bytes
    words: tuple[str, ...] = ()
    away: tuple[str, ...] = ()

    @property
    def payload(self) -> bytes:
        """The archive as ``BOOT`` reads it."""
        return b"%d\n" % len(self.archive) + self.archive


def archive(main: str | None, *parts: str) -> bytes:
    """Return a zip of our code: of the packages ``parts`` ("" is the topmost, without those in it) and of ``hosts``.

    Python runs it by the function ``main`` of the module ``main``, if there is one.
    """
    made = io.BytesIO()
    root = importlib.resources.files("nccl_triage")
    with zipfile.ZipFile(made, "w") as file:
        if main is not None:
            _add(file, "__main__.py", _MAIN.format(module=main).encode())
        if "" not in parts:
            _add_sources(file, root, "", only=("__init__.py", "_version.py"))
        for folder in sorted({part.partition("/")[0] for part in parts if "/" in part}):
            _add_sources(file, root / folder, folder, only=("__init__.py",))
        for part in (*parts, "hosts"):
            _add_sources(file, root / part if part else root, part, below=bool(part))
    return made.getvalue()


def _add_sources(
    file: zipfile.ZipFile, folder: Traversable, name: str, *, below: bool = False, only: Sequence[str] = ()
) -> None:
    """Add the Python files of a folder, and their tables, or ``only`` some; ``below``: and those of the folders in it."""
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        inside = f"{name}/{entry.name}" if name else entry.name
        if entry.name in only or (not only and entry.name.endswith((".py", ".json"))):
            _add(file, f"nccl_triage/{inside}", entry.read_bytes())
        elif below and entry.is_dir():
            _add_sources(file, entry, inside, below=True)


def _add(file: zipfile.ZipFile, name: str, data: bytes) -> None:
    file.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)


#: No single quote, backslash, ``$``, ``!`` or line break: remote shells (csh and fish, too) take it quoted as it is.
#: It is valid in any Python, so that an old one can say that it is. The folder in which it starts may hold modules of any
#: name, so that it must not be looked into. Pythons built for an old glibc (conda's, uv's) have no memfd_create. The agent's
#: children open the file by the agent's process id, which is asked of /proc itself because /proc may count otherwise than
#: getpid (unshare --pid).
BOOT = (
    'import os,sys;v=sys.version_info[:2];v<(3,10) and sys.exit("Python %d.%d is too old: 3.10 or later is needed"%v);'
    'h=os.readlink("/proc/self/cwd");o=lambda p:os.path.isabs(p) and not os.path.realpath(p)==h;'
    'sys.path=[p for p in sys.path if o(p)];e=os.environ;e["PYTHONSAFEPATH"]="1";'
    'e["PYTHONPATH"]=":".join(p for p in e.get("PYTHONPATH","").split(":") if o(p));'
    'i=open(0,"rb",0);n=int(i.readline() or sys.exit("standard input is closed: the command must hand it on (exec -i)"));'
    'm=getattr(os,"memfd_create",None);'
    'f=open(m("worker",0),"wb") if m else __import__("tempfile").TemporaryFile();'
    '[f.write(b) for b in iter(lambda:os.read(0,n-f.tell()),b"")];f.flush();os.set_inheritable(f.fileno(),True);'
    'os.execv(sys.executable,[sys.executable,os.path.realpath("/proc/self")+"/fd/%d"%f.fileno()]+sys.argv[1:])'
)
#: Commands that hand their arguments to a shell on the other side, joined by blanks.
_JOINING = frozenset({"ssh", "rsh", "pdsh"})


def boot_command(command: Sequence[str], python: str, words: Sequence[str] = ()) -> list[str]:
    """Return the command that starts a program behind ``command`` (here without one), to be fed with its ``payload``."""
    own = [python, "-c", BOOT, *words]
    if command and PurePath(command[0]).name in _JOINING:
        own = [shlex.quote(word) for word in own]
    return [*command, *own]
