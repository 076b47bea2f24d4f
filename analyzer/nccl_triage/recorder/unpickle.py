"""Reads pickles of containers, numbers and texts, and of nothing else.

``pickle.load`` runs what a file tells it to. Here every opcode that could name, call or restore something is refused,
whatever stands behind it, and so is a file that would take more memory than a dump can need: of a few megabytes a
pickle can make gigabytes. Keys of dictionaries must be texts, because numbers and tuples can be chosen so that all fall
on one place of the table. What refers to itself stays as it is: nobody here walks down a container of unknown depth.

Source of the format: CPython ``Lib/pickletools.py``; PyTorch writes protocol 2 (``torch/csrc/jit/serialization/pickler.cpp``).
"""

from __future__ import annotations

from struct import unpack_from
from typing import Any

#: Opcodes executed, containers built and bytes of one whole number: 20,000 entries with deep stacks need a third.
MAX_OPS, MAX_CONTAINERS, MAX_NUMBER = 24_000_000, 2_000_000, 16


class NotPlainError(ValueError):
    """The data are no pickle of plain containers: damaged, truncated, too large, or made to run code."""


def loads(data: bytes) -> object:
    """Return what a pickle of plain containers holds. Raises NotPlainError for any other data."""
    try:
        return _run(data)
    except NotPlainError:
        raise
    except (IndexError, KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        # Python raises these for a missing or mistyped stack entry, memo or argument.
        raise NotPlainError("damaged or cut off") from error
    except Exception as error:  # struct.error, which has no base class of its own
        raise NotPlainError("damaged or cut off") from error


def _key(value: object) -> str:
    if type(value) is not str:
        raise NotPlainError("a key that is not text")
    return value


def _run(data: bytes) -> object:
    """Execute the opcodes one by one; the most frequent ones of real dumps come first."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    push, containers, at = stack.append, 0, 0
    if not data.startswith(b"\x80"):
        raise NotPlainError("not a pickle of protocol 2 or later")
    for _ in range(MAX_OPS):
        op = data[at]
        at += 1
        if op == 0x68:  # h BINGET
            push(memo[data[at]])
            at += 1
        elif op == 0x4B:  # K BININT1
            push(data[at])
            at += 1
        elif op == 0x6A:  # j LONG_BINGET
            push(memo[unpack_from("<I", data, at)[0]])
            at += 4
        elif op == 0x28:  # ( MARK
            marks.append(len(stack))
        elif op == 0x5D:  # ] EMPTY_LIST
            containers += 1
            push([])
        elif op == 0x65:  # e APPENDS
            start = marks.pop()
            stack[start - 1].extend(stack[start:])
            del stack[start:]
        elif op == 0x7D:  # } EMPTY_DICT
            containers += 1
            push({})
        elif op == 0x75:  # u SETITEMS
            start = marks.pop()
            _set_items(stack, start)
            del stack[start:]
        elif op == 0x71:  # q BINPUT
            memo[data[at]] = stack[-1]
            at += 1
        elif op == 0x72:  # r LONG_BINPUT
            memo[unpack_from("<I", data, at)[0]] = stack[-1]
            at += 4
        elif op == 0x4D:  # M BININT2
            push(data[at] | data[at + 1] << 8)
            at += 2
        elif op == 0x4A:  # J BININT
            push(unpack_from("<i", data, at)[0])
            at += 4
        elif op == 0x8A:  # LONG1
            size = data[at]
            if size > MAX_NUMBER:
                raise NotPlainError("a number with too many digits")
            push(int.from_bytes(data[at + 1 : at + 1 + size], "little", signed=True))
            at += 1 + size
        elif op == 0x4E:  # N NONE
            push(None)
        elif op == 0x88 or op == 0x89:  # NEWTRUE, NEWFALSE
            push(op == 0x88)
        elif op == 0x86:  # TUPLE2
            containers += 1
            stack[-2:] = [(stack[-2], stack[-1])]
        elif op == 0x58 or op == 0x8C or op == 0x8D:  # X BINUNICODE, SHORT_BINUNICODE, BINUNICODE8
            text, at = _counted(data, at, {0x58: 4, 0x8C: 1, 0x8D: 8}[op])
            push(text.decode("utf-8", "replace"))
        elif op == 0x94:  # MEMOIZE
            memo[len(memo)] = stack[-1]
        elif op == 0x2E:  # . STOP
            if len(stack) != 1 or marks:
                raise NotPlainError("damaged or cut off")
            return stack[0]
        else:
            at = _rare(op, data, at, stack, marks)
            containers += 1
        if containers > MAX_CONTAINERS:
            raise NotPlainError(f"more than {MAX_CONTAINERS} lists and tables")
    raise NotPlainError(f"more than {MAX_OPS} steps")


def _set_items(stack: list[Any], start: int) -> None:
    """Put the keys and values from ``start`` on into the table before them."""
    target: dict[str, Any] = stack[start - 1]
    for index in range(start, len(stack), 2):
        key = stack[index]
        if type(key) is not str:
            raise NotPlainError("a key that is not text")
        target[key] = stack[index + 1]


def _counted(data: bytes, at: int, width: int) -> tuple[bytes, int]:
    """Return bytes that are preceded by their number, and the position after them."""
    size = int.from_bytes(data[at : at + width], "little")
    at += width
    if size > len(data) - at:
        raise NotPlainError("damaged or cut off")
    return data[at : at + size], at + size


def _rare(op: int, data: bytes, at: int, stack: list[Any], marks: list[int]) -> int:
    """Execute a rare opcode; returns the position of the next one."""
    if op == 0x80:  # PROTO
        if not 2 <= data[at] <= 5:
            raise NotPlainError(f"pickle protocol {data[at]}")
        return at + 1
    if op == 0x95:  # FRAME: its length is a promise that nobody needs
        return at + 8
    if op == 0x47:  # G BINFLOAT
        stack.append(unpack_from(">d", data, at)[0])
        return at + 8
    if op in (0x42, 0x43, 0x8E):  # B BINBYTES, C SHORT_BINBYTES, BINBYTES8
        found, at = _counted(data, at, {0x42: 4, 0x43: 1, 0x8E: 8}[op])
        stack.append(found)
        return at
    if op == 0x61:  # a APPEND
        item = stack.pop()
        stack[-1].append(item)
    elif op == 0x73:  # s SETITEM
        item = stack.pop()
        key = _key(stack.pop())
        stack[-1][key] = item
    elif op == 0x29:  # ) EMPTY_TUPLE
        stack.append(())
    elif op == 0x85:  # TUPLE1
        stack[-1:] = [(stack[-1],)]
    elif op == 0x87:  # TUPLE3
        stack[-3:] = [tuple(stack[-3:])]
    elif op == 0x74:  # t TUPLE
        start = marks.pop()
        stack[start:] = [tuple(stack[start:])]
    else:
        raise NotPlainError(f"an opcode ({op:#04x}) that plain-data dumps do not contain; nothing was executed")
    return at
