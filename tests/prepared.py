"""Run the program as a user does, in a process of its own, without paying for the start of Python each time.

One process for each test worker has imported what the commands import, and forks for every run: a run has its own
standard streams, environment, folder, signals and exit code, and leaves nothing behind for the next one. What the start
itself does (imports, the first signals, terminals) is tested with processes that begin at the beginning.
"""

from __future__ import annotations

import functools
import gc
import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
_MESSAGE = 1 << 20
#: Seconds after which a run counts as hanging.
_PATIENCE = 120.0


def run(
    words: Sequence[str], *, env: Mapping[str, str], stdin: bytes = b"", cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the program with these words, and return its exit code and what it printed."""
    server = _server(os.getpid())
    reader, writer = os.pipe()
    streams = [os.pipe(), os.pipe()]
    told = json.dumps({"words": list(words), "env": dict(env), "cwd": str(cwd or Path.cwd())}).encode()
    socket.send_fds(server, [told], [reader, *(end for _, end in streams)])
    for end in (reader, *(end for _, end in streams)):
        os.close(end)
    printed = [b"", b""]
    helpers = [threading.Thread(target=_write, args=(writer, stdin))]
    helpers += [threading.Thread(target=_read, args=(streams[at][0], printed, at)) for at in (0, 1)]
    for helper in helpers:
        helper.start()
    (code,) = struct.unpack("i", server.recv(4))  # raises TimeoutError
    for helper in helpers:
        helper.join()
    return subprocess.CompletedProcess(list(words), code, *printed)


def _write(end: int, data: bytes) -> None:
    try:
        with os.fdopen(end, "wb") as stream:
            stream.write(data)
    except BrokenPipeError:
        return


def _read(end: int, into: list[bytes], at: int) -> None:
    with os.fdopen(end, "rb") as stream:
        into[at] = stream.read()


@functools.cache
def _server(owner: int) -> socket.socket:
    """Return the connection to the process that forks; it ends when the connection does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT / "analyzer")},
        )  # fmt: skip
    ours.settimeout(_PATIENCE)
    return ours


def _serve(connection: socket.socket) -> None:
    _import_everything()
    gc.freeze()
    while True:
        told, ends, _, _ = socket.recv_fds(connection, _MESSAGE, 3)
        if not told:
            return
        child = os.fork()
        if not child:
            _become(json.loads(told), ends)
        for end in ends:
            os.close(end)
        _, status = os.waitpid(child, 0)
        connection.send(struct.pack("i", os.waitstatus_to_exitcode(status)))


def _import_everything() -> None:
    """Import the commands, and what they import once they run: what is kept of a run is what is shipped."""
    from nccl_triage import diagnose
    from nccl_triage.cli import every_command
    from nccl_triage.render import render

    every_command()
    log = io.BytesIO(b"[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    for form in ("text", "json", "html"):
        log.seek(0)
        render(diagnose("-", stdin=log).to_dict(), form, lang="zh")


def _become(told: dict[str, object], ends: list[int]) -> None:
    """Become the process that runs the program."""
    code: object = 1
    try:
        for number, end in enumerate(ends):
            os.dup2(end, number)
        os.closerange(3, 256)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(told["env"])  # type: ignore[call-overload]
        time.tzset()
        os.chdir(str(told["cwd"]))
        sys.argv = ["nccl-triage", *told["words"]]  # type: ignore[misc]
        for number, name, mode, errors in (
            (0, "stdin", "r", "strict"),
            (1, "stdout", "w", "strict"),
            (2, "stderr", "w", "backslashreplace"),
        ):
            setattr(sys, name, open(number, mode, encoding="utf-8", errors=errors, closefd=False))  # noqa: SIM115
        from nccl_triage.__main__ import run as program

        program()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: our parent ends, and with it the connection
    _serve(socket.socket(fileno=int(sys.argv[1])))
