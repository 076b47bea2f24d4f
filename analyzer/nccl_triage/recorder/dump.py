"""A dump of the flight recorder as records, whatever version wrote it and whether as pickle or as JSON.

Source: torch ``csrc/distributed/c10d/FlightRecorderDetail.hpp`` (``dump`` and ``dump_json``). What a later version adds
is passed over; what an earlier one lacks stays empty. Before 2.0 collectives and sends shared one number (``seq_id``).
The numbers and texts are somebody else's: all of them are cut to what can be told apart and shown.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from nccl_triage.patterns import lazily
from nccl_triage.recorder.unpickle import MAX_CONTAINERS, NotPlainError, loads

#: Versions whose fields are known. Others are read as far as they resemble these.
KNOWN = frozenset({"1.4", "2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10"})
#: Entries, groups, members, frames and tensors of one entry, dimensions and characters that are kept.
MAX_ENTRIES, MAX_GROUPS, MAX_RANK, MAX_FRAMES, MAX_TENSORS, MAX_DIMS, MAX_TEXT = 200_000, 4096, 1 << 20, 24, 16, 8, 200
_NUMBER = 1 << 63
_PEER = lazily(r"(send|recv) (\d{1,7})(->|<-)(\d{1,7})")
_RANKS = lazily(r"\d{1,7}")
#: Folders of code that is not the user's own.
_LIBRARY = lazily(
    r"/(?:site|dist)-packages/|/torch/(?:distributed|nn|autograd|utils|_\w+)/|/lib/python\d|^<frozen |^\?\?$"
)

Shape = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class Group:
    """A process group as one rank knows it: its members are global ranks, none where the dump does not tell."""

    name: str
    desc: str
    ranks: tuple[int, ...] = ()
    #: Tells groups of one name apart.
    mark: str = ""


@dataclass(slots=True)
class Status:
    """The last numbers of one process group on one rank; -1: none."""

    enqueued: int
    started: int
    completed: int


@dataclass(slots=True)
class Entry:
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
    #: How long it ran on the GPU, where that was measured (``TORCH_NCCL_ENABLE_TIMING``).
    ran_us: int | None
    #: The frames of the user's own code, the innermost first; all of them where none is.
    frames: tuple[str, ...]

    @property
    def done(self) -> bool:
        """Whether it ended well, as far as the recorder knows.

        Gloo (PyTorch 2.13) never moves the state on: there, what is retired has come back, well or not.
        """
        return self.state == "completed" or (self.retired and self.backend == "gloo")

    @property
    def failed(self) -> bool:
        """Whether the watchdog gave it up: taken from its list although it never completed."""
        return self.retired and not self.done


@dataclass(slots=True)
class Dump:
    """What one rank wrote."""

    version: str
    library: str
    groups: dict[str, Group] = field(default_factory=dict)
    status: dict[str, Status] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    #: What the entries call their groups.
    described: dict[str, str] = field(default_factory=dict)
    #: By which number this process counts its groups of Gloo.
    numbers: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read(data: bytes) -> Dump:
    """Return the dump that a file holds. Raises NotPlainError for what is none."""
    if data.startswith(b"\x80"):
        document = loads(data)
    elif data.count(b"[") + data.count(b"{") > MAX_CONTAINERS:
        raise NotPlainError(f"more than {MAX_CONTAINERS} lists and tables")
    else:
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise NotPlainError("no JSON") from error
    if not isinstance(document, Mapping) or not isinstance(document.get("entries"), (list, tuple)):
        raise NotPlainError("no dump of the flight recorder")
    return _dump(document)


def _dump(document: Mapping[str, Any]) -> Dump:
    found = Dump(
        _text(document.get("version"), 20) or "?",
        _text(document.get("comm_lib_version") or document.get("nccl_version"), 40),
    )
    if found.version not in KNOWN:
        found.problems.append(
            f"version {found.version} of the flight recorder is not known here; read as far as it resembles 2.10"
        )
    entries = document["entries"]
    if len(entries) > MAX_ENTRIES:
        found.problems.append(f"only the last {MAX_ENTRIES} of {len(entries)} entries were read")
    names: dict[str, str] = {}
    reader = _Reader()
    for raw in entries[-MAX_ENTRIES:]:
        if isinstance(raw, Mapping):
            entry = reader.entry(raw)
            names.setdefault(_text(raw.get("pg_id")), entry.group)
            found.described.setdefault(entry.group, entry.desc)
            if entry.backend == "gloo" and (number := _number(raw.get("pg_id"))) is not None:
                found.numbers.setdefault(entry.group, number)
            found.entries.append(entry)
    found.entries.sort(key=lambda entry: entry.record)
    for name, raw in _items(document.get("pg_config")):
        desc = _text(raw.get("desc"))
        members, mark = _members(raw.get("ranks"))
        if name or members:  # Gloo leaves the names out, and the members on most ranks
            found.groups[_text(name)] = Group(_text(raw.get("name")) or _text(name), desc, members, mark)
    for key, raw in _items(document.get("pg_status")):
        # The key is the number of the group in this process (pg_id), not its name.
        counters = (_number(raw.get(f"last_{what}_collective")) for what in ("enqueued", "started", "completed"))
        known = names.get(key) or (key if key in found.groups else None)
        if known is not None:
            found.status[known] = Status(*(-1 if value is None else value for value in counters))
    return found


def _items(table: object) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if isinstance(table, Mapping):
        for key, value in list(table.items())[:MAX_GROUPS]:
            if isinstance(value, Mapping):
                yield str(key)[:MAX_TEXT], value


def _members(value: object) -> tuple[tuple[int, ...], str]:
    """Return the members of a group, which the recorder writes as a text (``[0, 1, 2]``), and their mark."""
    if isinstance(value, (list, tuple)):
        value = str([number for number in value[:MAX_RANK] if type(number) is int and 0 <= number < MAX_RANK])
    return _members_in(value[: 8 * MAX_RANK]) if isinstance(value, str) else ((), "")


@lru_cache(maxsize=256)
def _members_in(text: str) -> tuple[tuple[int, ...], str]:
    # The dumps of a job repeat it: in all of them the world is the same text, of a hundred thousand characters.
    members = tuple(sorted({number for one in _RANKS.findall(text) if (number := int(one)) < MAX_RANK}))
    return members, f"{zlib.crc32(repr(members).encode()):08x}" if members else ""


def _text(value: object, limit: int = MAX_TEXT) -> str:
    if value is None or not isinstance(value, (str, int)):
        return ""
    if not isinstance(value, str):
        return str(value) if abs(value) < _NUMBER else ""
    # One line of printable text: it goes into a line of its own.
    return (
        value
        if len(value) <= limit and value.isprintable()
        else "".join(c if c.isprintable() else "?" for c in value[:limit])
    )


def _number(value: object) -> int | None:
    if type(value) is not int and type(value) is not float:
        return None
    return int(value) if -_NUMBER < value < _NUMBER else None


def _microseconds(milliseconds: object) -> int | None:
    if type(milliseconds) is not int and type(milliseconds) is not float:
        return None
    return round(1000 * milliseconds) if 0 <= milliseconds < _NUMBER / 1e6 else None


class _Reader:
    """Reads the entries of one dump. They repeat: what was seen before is looked up, not read again."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._names: dict[str, tuple[str, str, int | None, int | None]] = {}
        self._tensors: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._frames: dict[int, str] = {}
        self._stacks: dict[tuple[int, ...], tuple[str, ...]] = {}

    def _text(self, value: object) -> str:
        if type(value) is not str:
            return _text(value)
        found = self._texts.get(value)
        if found is None:
            found = self._texts[value] = _text(value)
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

    def entry(self, raw: Mapping[str, Any]) -> Entry:
        """Return one record."""
        get = raw.get
        backend, op, src, dst = self._name(get("profiling_name"))
        pair = get("process_group")
        group, desc = pair if isinstance(pair, (list, tuple)) and len(pair) == 2 else (get("pg_name", get("pg_id")), "")
        both = _number(get("seq_id")) or 0
        return Entry(
            record=_number(get("record_id", get("id"))) or 0,
            group=self._text(group),
            desc=self._text(desc),
            seq=_number(get("collective_seq_id", both)) or 0,
            p2p_seq=_number(get("p2p_seq_id", 0 if src is None else both)) or 0,
            op_id=_number(get("op_id")) or 0,
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
            created=_number(get("time_created_ns")) or None,
            started=_number(get("time_discovered_started_ns")) or None,
            completed=_number(get("time_discovered_completed_ns")) or None,
            timeout_ms=_number(get("timeout_ms")),
            ran_us=_microseconds(get("duration_ms")),
            frames=self._stack(get("frames")),
        )
