"""The variables that a process has now: those that it has set itself are not in /proc/PID/environ, which stays as it began.

The C library keeps them in an array to which its symbol ``environ`` points (environ(7)); a program that uses the symbol may hold
it instead of the library (a copy relocation). Both are found by their tables of dynamic symbols (elf(5)), and read through
/proc/PID/mem while the process goes on. It needs what py-spy needs; where that is missing, nothing is known.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

#: Bytes of a table of symbols, variables, and bytes of each.
_TABLE, _MOST, _LONG = 16 << 20, 4096, 1024
_ELF64, _DYNAMIC, _DYNSYM = b"\x7fELF\x02\x01", 3, 11
#: What happens where the memory changes while it is read, or a file is not what it seems.
_TORN = (OSError, ValueError, OverflowError, struct.error)
_LIBC = re.compile(r"/(?:libc[.-][^/]*|ld-musl-[^/]*)$")
_MAP = re.compile(r"([0-9a-f]+)-[0-9a-f]+ \S+ 0+ \S+ \d+ +(/.*)")


def current(pid: int) -> Iterator[tuple[str, str]]:
    """Yield the variables that a process has now, none where they cannot be read."""
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    with os.fdopen(memory, "rb", buffering=0):
        for address in _places(pid):
            # Of a program that holds the symbol, the library's own is empty.
            with contextlib.suppress(*_TORN):
                found = list(_variables(memory, address))
                yield from found
                return


def _places(pid: int) -> Iterator[int]:
    """Yield the addresses at which the pointer to the variables may be."""
    folder = Path(f"/proc/{pid}")
    with contextlib.suppress(*_TORN):
        lines = (folder / "maps").read_text(encoding="utf-8", errors="replace").splitlines()
        program = str((folder / "exe").readlink())
        for found in filter(None, map(_MAP.match, lines)):
            if found[2] == program or _LIBC.search(found[2]):
                way = folder / "exe" if found[2] == program else Path(f"{folder}/root{found[2]}")
                with way.open("rb") as file:
                    yield from _symbol(file.fileno(), int(found[1], 16))


def _symbol(file: int, start: int) -> Iterator[int]:
    """Yield the address of ``environ`` in a program or library that begins at ``start``, if it holds the symbol."""
    head = os.pread(file, 64, 0)
    if not head.startswith(_ELF64):
        return
    [kind], [at] = struct.unpack_from("<H", head, 16), struct.unpack_from("<Q", head, 40)
    size, count = struct.unpack_from("<HH", head, 58)
    sections = [struct.unpack_from("<IIQQQQII", os.pread(file, size, at + size * number)) for number in range(count)]
    for section in sections:
        if section[1] != _DYNSYM or section[6] >= count:
            continue
        names, symbols = (os.pread(file, min(one[5], _TABLE), one[4]) for one in (sections[section[6]], section))
        for name, _, _, index, value, _ in struct.iter_unpack("<IBBHQQ", symbols[: len(symbols) // 24 * 24]):
            if index and names[name : name + 10].split(b"\0")[0] in (b"environ", b"__environ"):
                yield value + (start if kind == _DYNAMIC else 0)


def _variables(memory: int, address: int) -> Iterator[tuple[str, str]]:
    [array] = struct.unpack("<Q", os.pread(memory, 8, address))
    pointers = os.pread(memory, 8 * _MOST, array)
    for (pointer,) in struct.iter_unpack("<Q", pointers[: len(pointers) // 8 * 8]):
        if not pointer:
            return
        entry = os.pread(memory, _LONG, pointer).partition(b"\0")[0]
        name, found, value = entry.decode("utf-8", "replace").partition("=")
        if found:
            yield name, value
