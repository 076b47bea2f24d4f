"""Carry Ethernet frames between two interfaces, each a while later: ``relay.py ONE OTHER SECONDS``.

``relay.py --plain INTERFACE`` switches off what the kernel leaves to network cards (checksums, segmentation), without
which a frame that is read here and sent again would be broken.
"""

from __future__ import annotations

import collections
import ctypes
import fcntl
import select
import socket
import struct
import sys
import time

_SIOCETHTOOL = 0x8946
#: ETHTOOL_SRXCSUM, STXCSUM, SSG, STSO, SGSO, SGRO.
_OFFLOADS = (0x15, 0x17, 0x19, 0x1F, 0x24, 0x2C)
_ALL_PROTOCOLS = 3
_OUTGOING = 4


def plain(interface: str) -> None:
    """Make the kernel hand over finished frames of ordinary size."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in _OFFLOADS:
            value = bytearray(struct.pack("II", command, 0))
            held = (ctypes.c_char * len(value)).from_buffer(value)
            request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(held))
            try:
                fcntl.ioctl(control, _SIOCETHTOOL, request)
            except OSError as error:
                print(f"{interface}: {command:#x}: {error}", file=sys.stderr)


def relay(one: str, other: str, seconds: float) -> None:
    """Carry frames both ways until killed."""
    ends = []
    for name in (one, other):
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
        end.bind((name, 0))
        ends.append(end)
    partner = {ends[0]: ends[1], ends[1]: ends[0]}
    held: collections.deque[tuple[float, socket.socket, bytes]] = collections.deque()
    while True:
        wait = max(0.0, held[0][0] - time.monotonic()) if held else None
        for end in select.select(ends, [], [], wait)[0]:
            frame, source = end.recvfrom(65535)
            if source[2] != _OUTGOING:
                held.append((time.monotonic() + seconds, partner[end], frame))
        while held and held[0][0] <= time.monotonic():
            _, end, frame = held.popleft()
            try:
                end.send(frame)
            except OSError as error:
                print(f"relay: {len(frame)} bytes: {error}", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1] == "--plain":
        plain(sys.argv[2])
    else:
        relay(sys.argv[1], sys.argv[2], float(sys.argv[3]))
