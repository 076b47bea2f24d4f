"""Start the worker on a host where nothing lies: a line of Python reads it from standard input and becomes it.

``python -c BOOT WORD...`` reads a line with a length and that many bytes, not one more (the agent's commands follow on
the same pipe), and replaces itself by ``python FILE WORD...``. FILE has no name in any folder and is gone with the last
process that holds it, however that ends.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePath

#: No single quote, backslash, ``$``, ``!`` or line break: remote shells (csh and fish, too) take it quoted as it is.
#: The folder in which it starts may hold modules of any name, so that it must not be looked into. Pythons built for an
#: old glibc (conda's, uv's) have no memfd_create. The agent's children open the file by the agent's process id, which
#: is asked of /proc itself because /proc may count otherwise than getpid (unshare --pid).
BOOT = (
    "import os,sys;sys.path=[p for p in sys.path if p];"
    'i=open(0,"rb",0);n=int(i.readline() or sys.exit("standard input is closed: the command must hand it on (exec -i)"));'
    'm=getattr(os,"memfd_create",None);'
    'f=open(m("worker",0),"wb") if m else __import__("tempfile").TemporaryFile();'
    '[f.write(b) for b in iter(lambda:os.read(0,n-f.tell()),b"")];f.flush();os.set_inheritable(f.fileno(),True);'
    'os.execv(sys.executable,[sys.executable,os.path.realpath("/proc/self")+"/fd/%d"%f.fileno()]+sys.argv[1:])'
)
#: Commands that hand their arguments to a shell on the other side, joined by blanks.
_JOINING = frozenset({"ssh", "rsh", "pdsh"})


def words(command: Sequence[str], python: str) -> list[str]:
    """Return the command that starts an agent behind ``command``, to be fed with ``parcel``."""
    own = [python, "-c", BOOT, "agent", "carry"]
    if PurePath(command[0]).name in _JOINING:
        own = [shlex.quote(word) for word in own]
    return [*command, *own]


def parcel(worker: bytes) -> bytes:
    """Return the worker as ``BOOT`` reads it."""
    return b"%d\n" % len(worker) + worker
