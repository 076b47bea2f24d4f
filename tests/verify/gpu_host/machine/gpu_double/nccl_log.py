"""What NCCL would say: its INFO and WARN lines in the formats of its releases, and the errors that torch makes of them."""

from __future__ import annotations

import os
import re
import threading
import time
from typing import Any

#: What ncclGetErrorString and torch say of each result.
_RESULTS = {
    "ncclUnhandledCudaError": (
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "Call to CUDA function failed.",
    ),
    "ncclSystemError": (
        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "System call (e.g. socket, malloc) or external library call failed or device error. ",
    ),
    "ncclInternalError": ("internal error - please report this issue to the NCCL developers", "Internal check failed."),
    "ncclInvalidArgument": (
        "invalid argument (run with NCCL_DEBUG=WARN for details)",
        "Invalid value for an argument.",
    ),
    "ncclInvalidUsage": (
        "invalid usage (run with NCCL_DEBUG=WARN for details)",
        "This usually reflects invalid usage of NCCL library.",
    ),
    "ncclRemoteError": (
        "remote process exited or there was a network error",
        "A call failed possibly due to a network error or a remote process exiting prematurely.",
    ),
}


def error_text(result: str, last: str, version: str) -> str:
    """Return the text of the DistBackendError that torch raises for a result of NCCL."""
    short, long = _RESULTS[result]
    return (
        f"NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, {short}, NCCL version {version}\n"
        f"{result}: {long}\nLast error:\n{last}"
    )


class Log:
    """NCCL_DEBUG and NCCL_DEBUG_FILE, read when NCCL is first used as NCCL does."""

    def __init__(self, name: str, device: int) -> None:
        level = os.environ.get("NCCL_DEBUG", "").upper()
        self._level = {"VERSION": 1, "WARN": 2, "INFO": 3, "TRACE": 4}.get(level, 0)
        self._head = f"{name}:{os.getpid()}:{threading.get_native_id()} [{device}] "
        path = os.environ.get("NCCL_DEBUG_FILE", "")
        known = {"%h": name, "%p": str(os.getpid()), "%%": "%"}
        self._path = re.sub(r"%[hp%]", lambda found: known[found[0]], path)

    def version(self, text: str) -> None:
        """Write the line that rank 0 writes at any level but none."""
        if self._level:
            self._write(f"NCCL version {text}\n")

    def info(self, text: str) -> None:
        """Write a line that only INFO shows."""
        if self._level >= 3:
            self._write(f"{self._head}NCCL INFO {text}\n")

    def warn(self, where: str, text: str) -> None:
        """Write a warning, with its empty line before it."""
        if self._level >= 2:
            stamp = time.strftime("[%Y-%m-%d %H:%M:%S] ")
            self._write(f"\n{stamp}{self._head}{where} NCCL WARN {text}\n")

    def _write(self, text: str) -> None:
        if self._path:
            with open(self._path, "a", encoding="utf-8") as file:  # noqa: PTH123
                file.write(text)
        else:
            os.write(1, text.encode())


def network(names: list[tuple[str, str]], wanted: str | None) -> list[tuple[str, str]]:
    """Return the (interface, address) pairs that NCCL takes, in its order, at most 16; empty where none fits.

    ``wanted`` is NCCL_SOCKET_IFNAME: prefixes, ``=`` for whole names, ``^`` for those that must not be.
    """
    if wanted:
        reverse, exact = wanted.startswith("^"), wanted.lstrip("^").startswith("=")
        parts = wanted.lstrip("^").lstrip("=").split(",")

        def fits(name: str) -> bool:
            return any(name == part if exact else name.startswith(part) for part in parts)

        return [pair for pair in names if fits(pair[0]) != reverse][:16]
    for choose in (
        lambda name: name.startswith("ib"),
        lambda name: not name.startswith(("docker", "lo", "virbr")),
        lambda name: name.startswith("docker"),
        lambda name: name.startswith("lo"),
    ):
        found = [pair for pair in names if choose(pair[0])]
        if found:
            return found[:16]
    return []


def interfaces() -> list[tuple[str, str]]:
    """Return the interfaces of this host that are up and have an IPv4 address, in the kernel's order."""
    import fcntl
    import socket
    import struct

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                address = socket.inet_ntoa(fcntl.ioctl(probe, 0x8915, request)[20:24])
                flags: Any = struct.unpack("H", fcntl.ioctl(probe, 0x8913, request)[16:18])[0]
            except OSError:
                continue
            if flags & 0x41 == 0x41:
                found.append((name, address))
    return found
