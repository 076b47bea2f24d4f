"""Starts processes of hosts from one that has imported torch: ``starter.py SOCKET`` serves, ``starter.py SOCKET - ARG...`` asks.

Who asks hands over its standard files, environment and folder, and waits for the exit code; the process that was started
dies with it. A command that does not run Python is run as it is.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def ask(path: str, argv: list[str]) -> int:
    """Have a command started; returns its exit code."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        question = json.dumps({"argv": argv, "env": dict(os.environ), "cwd": str(Path.cwd())}).encode()
        socket.send_fds(line, [len(question).to_bytes(4, "big")], [0, 1, 2])
        line.sendall(question)
        os.close(0)
        os.close(1)
        code = int(line.recv(16) or b"1")
    if code < 0:
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _received(line: socket.socket) -> tuple[dict[str, object], list[int]]:
    head, descriptors, _, _ = socket.recv_fds(line, 4, 3)
    size, data = int.from_bytes(head, "big"), b""
    while len(data) < size:
        data += line.recv(size - len(data))
    return json.loads(data), descriptors


def serve(path: str) -> None:
    """Import torch, then start what is asked for until the parent is gone."""
    import torch
    import torch.distributed
    import torch.distributed.distributed_c10d

    torch.set_num_threads(1)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    selector = selectors.DefaultSelector()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen(64)
        selector.register(door, selectors.EVENT_READ)
        print("ready", flush=True)
        lines: dict[int, socket.socket] = {}
        while True:
            for key, _ in selector.select(0.02 if lines else None):
                if key.fileobj is door:
                    line, _ = door.accept()
                    lines[_start(line, door)] = line
                    selector.register(line, selectors.EVENT_READ)
                else:  # who asked is gone
                    selector.unregister(key.fileobj)
                    for pid in [pid for pid, line in lines.items() if line is key.fileobj]:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
            _bury(lines, selector)


def _bury(lines: dict[int, socket.socket], selector: selectors.BaseSelector) -> None:
    while lines:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        line = lines.pop(pid)
        with contextlib.suppress(OSError):
            line.sendall(b"%d" % os.waitstatus_to_exitcode(status))
        with contextlib.suppress(KeyError):
            selector.unregister(line)
        line.close()


def _start(line: socket.socket, door: socket.socket) -> int:
    told, descriptors = _received(line)
    pid = os.fork()
    if pid:
        for descriptor in descriptors:
            os.close(descriptor)
        return pid
    code = 1
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        _be(told)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    return 0


def _be(told: dict[str, object]) -> None:
    """Turn this process into the one that is asked for."""
    from gpu_double import forking, host, process

    forking.close_all_but({0, 1, 2})
    argv, env = [str(word) for word in told["argv"]], told["env"]  # type: ignore[attr-defined]
    os.environ.clear()
    os.environ.update(env)  # type: ignore[arg-type]
    os.chdir(str(told["cwd"]))
    words = argv[1:]
    while words and words[0] in ("-P", "-s", "-u", "-B"):
        del words[0]
    if not words or "python" not in os.path.basename(argv[0]) or (words[0].startswith("-") and words[0] != "-c"):  # noqa: PTH119
        process.enter_network(host.read(os.environ["GPU_HOST"]))
        os.execvp(argv[0], argv)
    process.become(os.environ["GPU_HOST"])
    real = os.execv

    def execv(path: str, arguments: list[str]) -> None:
        if path == sys.executable and len(arguments) > 1 and not arguments[1].startswith("-"):
            forking.run(arguments[1:])
            sys.exit(0)
        real(path, arguments)

    os.execv = execv  # type: ignore[assignment]
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        forking.run(words)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    if len(sys.argv) > 2:
        sys.exit(ask(sys.argv[1], sys.argv[3:]))
    serve(sys.argv[1])
