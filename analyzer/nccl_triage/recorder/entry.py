"""One record of a dump: the call that a rank issued, when, and its state.

The numbers and texts are somebody else's: all of them are cut to what can be told apart and shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.recorder_table import Shape

#: The most frames and tensors of an entry, dimensions and characters that are kept.
MAX_FRAMES, MAX_TENSORS, MAX_DIMS, MAX_TEXT = 24, 16, 8, 200
_NUMBER = 1 << 63
_PEER = lazily(r"(send|recv) (\d{1,7})(->|<-)(\d{1,7})")
#: Folders of code that is not the user's.
_LIBRARY = lazily(
    r"/(?:site|dist)-packages/|/torch/(?:distributed|nn|autograd|utils|_\w+)/|/lib/python\d|^<frozen |^\?\?$"
)


@dataclass(slots=True)
class RecorderEntry:
    """One operation that the rank issued. ``src`` and ``dst`` (of a send or receive) are ranks within the group.

    ``p2p``: a send, a receive, or the end of a batch of them, whose numbers are none of collectives.
    """

    record: int
    group: str
    desc: str
    seq: int
    p2p_seq: int
    op_id: int
    backend: str
    op: str
    src: int | None
    dst: int | None
    p2p: bool
    inputs: Shape
    outputs: Shape
    input_types: tuple[str, ...]
    output_types: tuple[str, ...]
    state: str
    retired: bool
    created: int | None
    started: int | None
    completed: int | None
    timeout_ms: int | None
    #: Its duration on the GPU, where that was measured (``TORCH_NCCL_ENABLE_TIMING``).
    ran_us: int | None
    #: The frames of the user's own code, the innermost first; all of them where none is.
    frames: tuple[str, ...]

    @property
    def done(self) -> bool:
        """Whether it completed, as far as the recorder knows.

        Gloo (PyTorch 2.13) never updates the state: there, a retired call has returned, successfully or not.
        """
        return self.state == "completed" or (self.retired and self.backend == "gloo")

    @property
    def failed(self) -> bool:
        """Whether the watchdog gave up on it: retired although it never completed."""
        return self.retired and not self.done


def text_of(value: object, limit: int = MAX_TEXT) -> str:
    """Return a text or a whole number as one line of printable text, cut to a length; empty for anything else."""
    if value is None or not isinstance(value, (str, int)):
        return ""
    if not isinstance(value, str):
        return str(value) if abs(value) < _NUMBER else ""
    # One line of printable text, since it becomes part of a line.
    return (
        value
        if len(value) <= limit and value.isprintable()
        else "".join(c if c.isprintable() else "?" for c in value[:limit])
    )


def number_of(value: object) -> int | None:
    """Return a number as a whole one of at most 64 bits, None for anything else."""
    if type(value) is not int and type(value) is not float:
        return None
    return int(value) if -_NUMBER < value < _NUMBER else None


def _microseconds(milliseconds: object) -> int | None:
    if type(milliseconds) is not int and type(milliseconds) is not float:
        return None
    return round(1000 * milliseconds) if 0 <= milliseconds < _NUMBER / 1e6 else None


class Reader:
    """Reads the entries of one dump; parts that repeat are cached."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._names: dict[str, tuple[str, str, int | None, int | None]] = {}
        self._tensors: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._frames: dict[int, str] = {}
        self._stacks: dict[tuple[int, ...], tuple[str, ...]] = {}

    def _text(self, value: object) -> str:
        if type(value) is not str:
            return text_of(value)
        found = self._texts.get(value)
        if found is None:
            found = self._texts[value] = text_of(value)
        return found

    def _name(self, value: object) -> tuple[str, str, int | None, int | None]:
        """Return back end, operation, source and target of a name: ``nccl:send 1->2``, ``nccl:recv 2<-1``."""
        text = self._text(value)
        found = self._names.get(text)
        if found is None:
            backend, _, name = text.partition(":") if ":" in text else ("", "", text)
            peer = _PEER.match(name)
            ends = (None, None) if peer is None else (int(peer[2]), int(peer[4]))
            if peer is not None and peer[3] == "<-":
                ends = ends[::-1]
            found = self._names[text] = (backend, peer[1] if peer else name or "?", *ends)
        return found

    def _shape(self, value: object) -> Shape:
        if not isinstance(value, (list, tuple)):
            return ()
        return tuple([self._tensor(tensor) for tensor in value[:MAX_TENSORS] if isinstance(tensor, (list, tuple))])

    def _tensor(self, value: list[Any] | tuple[Any, ...]) -> tuple[int, ...]:
        sizes = tuple([size for size in value[:MAX_DIMS] if type(size) is int and 0 <= size < _NUMBER])
        return self._tensors.setdefault(sizes, sizes)

    def _types(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)):
            return ()
        return tuple(dict.fromkeys([self._text(name)[:24] for name in value[:MAX_TENSORS]]))

    def _stack(self, value: object) -> tuple[str, ...]:
        """Return the frames of a stack; torch writes each frame once, so the same frame is the same object."""
        if not isinstance(value, (list, tuple)):
            return ()
        frames = [frame for frame in value[:MAX_FRAMES] if isinstance(frame, Mapping)]
        key = tuple(map(id, frames))
        found = self._stacks.get(key)
        if found is None:
            texts = [self._frame(frame) for frame in frames]
            found = self._stacks[key] = tuple(text for text in texts if not _LIBRARY.search(text)) or tuple(texts)
        return found

    def _frame(self, frame: Mapping[str, Any]) -> str:
        found = self._frames.get(id(frame))
        if found is None:
            place = f"{self._text(frame.get('filename'))}:{self._text(frame.get('line'))}"
            found = self._frames[id(frame)] = f"{place} {self._text(frame.get('name'))[:80]}"
        return found

    def entry(self, raw: Mapping[str, Any]) -> RecorderEntry:
        """Return one record."""
        get = raw.get
        backend, op, src, dst = self._name(get("profiling_name"))
        pair = get("process_group")
        group, desc = pair if isinstance(pair, (list, tuple)) and len(pair) == 2 else (get("pg_name", get("pg_id")), "")
        both = number_of(get("seq_id")) or 0
        return RecorderEntry(
            record=number_of(get("record_id", get("id"))) or 0,
            group=self._text(group),
            desc=self._text(desc),
            seq=number_of(get("collective_seq_id", both)) or 0,
            p2p_seq=number_of(get("p2p_seq_id", 0 if src is None else both)) or 0,
            op_id=number_of(get("op_id")) or 0,
            backend=backend,
            op=op,
            src=src,
            dst=dst,
            p2p=src is not None or get("is_p2p") is True,
            inputs=self._shape(get("input_sizes")),
            outputs=self._shape(get("output_sizes")),
            input_types=self._types(get("input_dtypes")),
            output_types=self._types(get("output_dtypes")),
            state=self._text(get("state"))[:20],
            retired=get("retired") is True,
            created=number_of(get("time_created_ns")) or None,
            started=number_of(get("time_discovered_started_ns")) or None,
            completed=number_of(get("time_discovered_completed_ns")) or None,
            timeout_ms=number_of(get("timeout_ms")),
            ran_us=_microseconds(get("duration_ms")),
            frames=self._stack(get("frames")),
        )
