"""The database file: opened with care, written in one transaction, readable without write permission.

The journal is SQLite's rollback journal, since homes lie on network file systems, where the write-ahead log does not work.
Errors of the file are raised as ``HistoryError``; a diagnosis goes on without it. When hundreds of jobs die at once, an
incident that finds the database locked is left in a file beside it, which the next writer takes in.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote

from nccl_triage import messages
from nccl_triage.errors import HistoryError, UsageError
from nccl_triage.history import schema
from nccl_triage.history.incidents import Input, JobIdentity, KeptIncident, same_job

#: Seconds to wait for the lock of the database.
LOCK_TIMEOUT = 1.0
#: Incidents kept; the oldest go. Of those whose logs begin with the same line, so many are compared.
MOST, _ALIKE = 20_000, 500


class Store:
    """An open history; for one thread. Close it, or use it in a ``with`` block."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def keep(self, incident: KeptIncident) -> int:
        """Store an incident and return its number; it replaces what is known of the same logs, unless that is more."""
        with self._writing() as cursor:
            waiting = self._take_in(cursor)
            number = self._put(cursor, incident)
            cursor.execute(
                "DELETE FROM incident WHERE id IN (SELECT id FROM incident ORDER BY happened DESC, id DESC LIMIT -1 OFFSET ?)",
                (MOST,),
            )
        remove_waiting(waiting)
        return number

    def take_in(self) -> None:
        """Store the incidents that found the database locked."""
        with self._writing() as cursor:
            waiting = self._take_in(cursor)
        remove_waiting(waiting)

    def _take_in(self, cursor: sqlite3.Cursor) -> list[Path]:
        """Store what waits beside the database; return the files, which go when it is safe."""
        files = []
        for file, incident in collect_waiting(self._path):
            files.append(file)
            if incident is None:
                continue
            # A writer that was ended before it removed the file has stored it already.
            known = "SELECT 1 FROM incident WHERE recorded = ? AND lines = ? AND headline = ?"
            if not cursor.execute(known, (incident.recorded, incident.lines, incident.headline)).fetchone():
                self._put(cursor, incident)
        return files

    def _put(self, cursor: sqlite3.Cursor, incident: KeptIncident) -> int:
        known = self._same(incident.inputs, JobIdentity(incident.job, incident.job_id))
        fuller = [one for one in known if one[1] > incident.lines]
        if fuller:
            return fuller[0][0]
        cursor.executemany("DELETE FROM incident WHERE id = ?", [(number,) for number, _ in known])
        return schema.insert(cursor, incident, min((number for number, _ in known), default=None))

    def forget(self, numbers: Iterable[int]) -> int:
        """Remove incidents; return how many there were."""
        with self._writing() as cursor:
            return sum(cursor.execute("DELETE FROM incident WHERE id = ?", (number,)).rowcount for number in numbers)

    def incidents(self, since: float | None = None, until: float | None = None) -> list[KeptIncident]:
        """Return the incidents of a time, the latest first, without their logs."""
        span = (-1e18 if since is None else since, 1e18 if until is None else until)
        with self._reading():
            return schema.select(
                self._connection, "WHERE happened BETWEEN ? AND ? ORDER BY happened DESC, id DESC", span
            )

    def paths(self, since: float, until: float) -> dict[int, list[str]]:
        """Return the paths of the logs of each failure of a time whose cause is known."""
        query = (
            "SELECT input.incident, input.path FROM input JOIN incident ON incident.id = input.incident "
            "WHERE incident.happened BETWEEN ? AND ? AND incident.verdict = 'diagnosed'"
        )
        found: dict[int, list[str]] = {}
        with self._reading():
            for number, path in self._connection.execute(query, (since, until)):
                found.setdefault(int(number), []).append(str(path))
        return found

    def incident(self, number: int) -> KeptIncident | None:
        """Return one incident with its logs."""
        with self._reading():
            found = schema.select(self._connection, "WHERE id = ?", (number,), inputs=True)
        return found[0] if found else None

    def same(self, inputs: Iterable[Input], job: JobIdentity | None = None) -> set[int]:
        """Return the earlier incidents of logs with these marks, of a job that may be this one."""
        with self._reading():
            return {number for number, _ in self._same(inputs, job or JobIdentity())}

    def _same(self, inputs: Iterable[Input], job: JobIdentity) -> list[tuple[int, int]]:
        """Return the number and the lines of the incidents that these logs told of, those with most lines first."""
        ours = [one.marks for one in inputs if one.marks]
        heads = sorted({each[0] for each in ours})
        found: set[int] = set()
        for start in range(0, len(heads), 500):
            some = heads[start : start + 500]
            places = ", ".join("?" * len(some))
            query = f"SELECT DISTINCT incident FROM input WHERE first_mark IN ({places})"
            found.update(number for (number,) in self._connection.execute(query, some))
        known = []
        for number in sorted(found)[-_ALIKE:]:
            theirs = schema.marks_of(self._connection, number)
            if same_job(ours, theirs):
                query = "SELECT lines, job, job_id FROM incident WHERE id = ?"
                lines, name, its_id = self._connection.execute(query, (number,)).fetchone()
                if not job.is_other(name, its_id):
                    known.append((number, int(lines)))
        return sorted(known, key=lambda one: (-one[1], one[0]))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Cursor]:
        with _told(self._path, reading=False):
            cursor = self._connection.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with _told(self._path, reading=True):
            yield


def writable(path: Path, timeout: float = LOCK_TIMEOUT) -> Store:
    """Open a history to write, and make it where there is none; raises HistoryError."""
    with _told(path, reading=False):
        _make(path)
        connection = sqlite3.connect(path, timeout=timeout, isolation_level=None)
        try:
            _settle(connection)
            connection.execute("PRAGMA foreign_keys = ON")
            schema.migrate(connection)
        except BaseException:
            connection.close()
            raise
        return Store(connection, path)


def readable(path: Path, timeout: float = LOCK_TIMEOUT) -> Store | None:
    """Open a history to read only, None where there is none; raises HistoryError.

    One of an earlier version is brought up to date in memory: whoever reads changes nothing.
    """
    with _told(path, reading=True):
        if not _is_there(path):
            return None
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro", uri=True, timeout=timeout, isolation_level=None
        )
        try:
            _settle(connection)
            if schema.version(connection) != len(schema.MIGRATIONS):
                copy = sqlite3.connect(":memory:", isolation_level=None)
                connection.backup(copy)
                connection.close()
                connection = copy
                schema.migrate(connection)
        except BaseException:
            connection.close()
            raise
        return Store(connection, path)


def _settle(connection: sqlite3.Connection) -> None:
    """Configure SQLite to trust neither the schema nor the cells of the file: others may have written it."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")


def _is_there(path: Path) -> bool:
    """Tell whether there is a file; raises UsageError for what is none."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode):
        raise UsageError("it is not a file", remedy="name a file: --history FILE")
    return True


def _make(path: Path) -> None:
    """Make the file where there is none, or what a link leads to, for its owner alone: it names hosts and jobs."""
    if not _is_there(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


_DAMAGED = "it is damaged"
#: How SQLite begins to say it -> what that means to a user.
_MEANINGS = {
    "database is locked": "other programs keep writing to it",
    "attempt to write a readonly database": "it may not be written",
    "unable to open database file": "it cannot be opened, or its folder is not writable",
    "file is not a database": "it is not a database",
    "database disk image is malformed": _DAMAGED,
    "database or disk is full": "the disk is full",
    "disk I/O error": "the disk cannot be written: full, broken or without locks",
}


@contextmanager
def _told(path: Path, *, reading: bool) -> Iterator[None]:
    """Raise errors as HistoryError that says what is wrong, and where."""
    try:
        yield
        return
    except HistoryError:
        raise
    except (sqlite3.Error, UsageError, OSError, ValueError, TypeError) as error:
        why, remedy = _why(error)
        busy = str(error).startswith("database is locked")
    template = "the history {path} cannot be read: {why}" if reading else "the history {path} cannot be written: {why}"
    told = HistoryError(template, remedy=remedy, path=path, why=why)
    told.busy = busy
    raise told from None


def _why(error: Exception) -> tuple[dict[str, str], str]:
    """Return what went wrong, in both languages, and what to try."""
    remedy = "name another file with --history FILE, or go without one: --no-history"
    if isinstance(error, UsageError):
        return {lang: error.in_language(lang)[0] for lang in ("en", "zh")}, error.texts[2] or remedy
    if isinstance(error, OSError):
        said = error.strerror or str(error)
    elif isinstance(error, sqlite3.Error):
        said = next((text for start, text in _MEANINGS.items() if str(error).startswith(start)), str(error))
    else:
        said = _DAMAGED
    return {lang: messages.translated_text(said, lang) for lang in ("en", "zh")}, remedy


#: Files that may wait, their largest size, and how many one writer takes in.
MOST_WAITING, LARGEST, PORTION = 5000, 1 << 20, 500
_END = ".json"


def waiting_folder(path: Path) -> Path:
    """Return the folder of the incidents that wait for a database."""
    return path.with_name(path.name + ".waiting")


def leave_waiting(path: Path, incident: KeptIncident) -> None:
    """Write an incident to a file of its own, at once or not at all; raises OSError."""
    place = waiting_folder(path)
    place.mkdir(mode=0o700, exist_ok=True)
    if sum(1 for _ in place.iterdir()) >= MOST_WAITING:
        raise OSError(f"{MOST_WAITING} files wait in {place} already")
    name = f"{time.time_ns():020}-{os.getpid()}"
    half = place / f".{name}"
    data = json.dumps(asdict(incident), ensure_ascii=False).encode("utf-8", "replace")
    with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(data)
    half.replace(place / f"{name}{_END}")


def collect_waiting(path: Path) -> list[tuple[Path, KeptIncident | None]]:
    """Return the waiting files, the oldest first, each with its incident, None for a foreign file."""
    try:
        files = sorted(file for file in waiting_folder(path).iterdir() if file.name.endswith(_END))
    except OSError:
        return []
    return [(file, _read(file)) for file in files[:PORTION]]


def remove_waiting(files: Iterable[Path]) -> None:
    """Remove files that were taken in."""
    for file in files:
        with contextlib.suppress(OSError):
            file.unlink()


def _read(file: Path) -> KeptIncident | None:
    try:
        state = file.lstat()
        if not stat.S_ISREG(state.st_mode) or state.st_size > LARGEST:
            return None
        data = json.loads(file.read_bytes())
        row = {**data, "hosts": json.dumps(data["hosts"]), "software": json.dumps(data["software"])}
        culprits = tuple(schema.suspect(*(one[name] for name in schema.SUSPECT)) for one in data["culprits"])
        inputs = tuple(
            Input(str(one["path"]), int(one["bytes"]), int(one["lines"]), tuple(map(str, one["marks"])))
            for one in data["inputs"]
        )
        return schema.incident(0, row, culprits, inputs)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
