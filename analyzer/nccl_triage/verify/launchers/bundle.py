"""The worker as one file, and how it is started on a host that has no nccl-triage.

``python -c BOOT WORD...`` reads a line with a length and that many bytes, not one more (the commands of the agent follow
on the same pipe), and replaces itself by ``python FILE WORD...``. FILE has no name in any folder and is gone with the
last process that holds it. The logs of such hosts' ranks come back with the agent's answers.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import shlex
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from nccl_triage import archives

#: Name of the package inside the file.
PACKAGE = "nccl_triage_worker"
#: The path comes first: what it lets in could be any other module.
_MAIN = f"""from {PACKAGE} import safe_path
safe_path.apply()
import sys
from {PACKAGE}.__main__ import main
sys.exit(main())
"""


def write(path: Path) -> Path:
    """Write the worker's zip application; returns its path."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archives.add_text(archive, "__main__.py", _MAIN)
        archives.add_sources(archive, importlib.resources.files("nccl_triage.verify.worker"), PACKAGE)
    path.chmod(0o600)  # private: it is run as it lies there
    return path


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


def boot_command(command: Sequence[str], python: str, words: Sequence[str] = ("agent", "carry")) -> list[str]:
    """Return the command that starts an agent behind ``command``, to be fed with ``boot_payload``."""
    own = [python, "-c", BOOT, *words]
    if PurePath(command[0]).name in _JOINING:
        own = [shlex.quote(word) for word in own]
    return [*command, *own]


def boot_payload(worker: bytes) -> bytes:
    """Return the worker as ``BOOT`` reads it."""
    return b"%d\n" % len(worker) + worker


class RankLogs:
    """The folders of the runs that one link has started."""

    def __init__(self) -> None:
        self._folders: dict[str, Path] = {}

    def note(self, command: Mapping[str, Any]) -> None:
        """Remember the folder of a run's logs, if the command starts one."""
        if command.get("do") == "run":
            self._folders[command["run"]] = Path(command["folder"])

    def unpack(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer; a log in it is written to where a rank on this host would have left it."""
        folder = self._folders.get(str(answer.get("run")))
        for name, end in (("log", ".log"), ("nccl_log", ".nccl.log")):
            text = answer.pop(name, None)
            if isinstance(text, str) and folder is not None:
                with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                    path = folder / f"rank-{int(answer['rank'])}{end}"
                    folder.mkdir(parents=True, exist_ok=True)
                    path.touch(mode=0o600)
                    path.write_text(text, encoding="utf-8", errors="replace")
        return answer
