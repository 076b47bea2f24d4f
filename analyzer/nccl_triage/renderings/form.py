"""What a rendering is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nccl_triage.observations.store import SourceInfo

#: First bytes of a file, unpacked, by which it is recognised.
SAMPLE = 8192


def _none(name: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Rendering:
    """A kind of document that is turned into lines.

    ``recognises`` is asked with the name of the file, without folders and the ending of a compression, and its first
    bytes (``SAMPLE`` at most; "<stdin>" is the name of a pipe). ``render`` makes lines of the whole, of at most
    ``max_size`` bytes; what it has to complain of it adds to ``info.problems``, and what the document says of its
    writer (rank, host, pid) it may add to ``info``. It returns None for what is no such document after all, which is
    then read as text if it ``is_text``, and left out otherwise, as is what is larger. ``wants`` names files that are
    worth a look although their endings are those of no log.
    """

    name: str
    max_size: int
    recognises: Callable[[str, bytes], bool]
    render: Callable[[bytes, SourceInfo], bytes | None]
    is_text: bool = True
    wants: Callable[[str], bool] = _none
