"""Git's blobs without git's help: the id of a text, and how its lines are counted."""

from __future__ import annotations

import hashlib


def blob_id(data: bytes) -> str:
    """Return the id that git gives a file with this content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def lines_of(data: bytes) -> int:
    """Count lines by their line feeds; what follows the last one is a line too."""
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
