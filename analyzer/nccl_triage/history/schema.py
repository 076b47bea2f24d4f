"""The tables of the history, the migrations from earlier versions, and incidents as rows of the tables.

``PRAGMA user_version`` is the number of migrations that were applied; ``PRAGMA application_id`` tells our databases from
others. A released migration is never changed: a change is a further one. docs/history.md explains every column, and a
test keeps the two together. Rows are checked as they are read, since a file may be damaged or foreign.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from nccl_triage.errors import UsageError
from nccl_triage.history.incidents import Input, KeptIncident, KeptSuspect

#: "NTRG".
APPLICATION = 0x4E545247

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE incident (
            id INTEGER PRIMARY KEY,
            happened REAL NOT NULL,
            dated INTEGER NOT NULL,
            recorded REAL NOT NULL,
            verdict TEXT NOT NULL,
            cause TEXT,
            family TEXT,
            status TEXT,
            confidence REAL,
            headline TEXT NOT NULL,
            headline_zh TEXT NOT NULL,
            world_size INTEGER,
            launcher TEXT,
            hosts TEXT NOT NULL,
            host_count INTEGER NOT NULL,
            software TEXT NOT NULL,
            tool TEXT NOT NULL,
            bytes INTEGER NOT NULL,
            lines INTEGER NOT NULL
        )""",
        """CREATE TABLE culprit (
            incident INTEGER NOT NULL REFERENCES incident (id) ON DELETE CASCADE,
            host TEXT,
            rank INTEGER,
            gpu INTEGER,
            address TEXT,
            pid INTEGER,
            pci TEXT
        )""",
        """CREATE TABLE input (
            incident INTEGER NOT NULL REFERENCES incident (id) ON DELETE CASCADE,
            path TEXT NOT NULL,
            bytes INTEGER NOT NULL,
            lines INTEGER NOT NULL,
            first_mark TEXT,
            marks TEXT NOT NULL
        )""",
        "CREATE INDEX incident_happened ON incident (happened)",
        "CREATE INDEX culprit_incident ON culprit (incident)",
        "CREATE INDEX input_incident ON input (incident)",
        "CREATE INDEX input_first_mark ON input (first_mark)",
    ),
    tuple(f"ALTER TABLE incident ADD COLUMN {name} TEXT" for name in ("job", "job_id", "command")),
)


def version(connection: sqlite3.Connection) -> int:
    """Return the number of migrations of a database; raises UsageError for a foreign one or one of a newer version."""
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if application != APPLICATION and not (empty and not found and not application):
        raise UsageError("it is a database of another program", remedy="name another file: --history FILE")
    if found > len(MIGRATIONS):
        raise UsageError(
            "it was written by a newer nccl-triage: version {found}, and this program knows {known}",
            found=found,
            known=len(MIGRATIONS),
            remedy="upgrade nccl-triage, or name another file: --history FILE",
        )
    return found


def migrate(connection: sqlite3.Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Bring a database up to date, in one transaction; one that is up to date is only looked at."""
    if version(connection) == len(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number, statements in enumerate(migrations[version(connection) :], version(connection) + 1):
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


#: The columns of an incident that hold its fields of the same names; hosts and software are JSON.
_COLUMNS = tuple(one.name for one in fields(KeptIncident) if one.name not in ("culprits", "inputs", "id"))
SUSPECT = tuple(one.name for one in fields(KeptSuspect))
_JSON = ("hosts", "software")
#: Separates the marks of a log.
_BETWEEN = " "


def insert(cursor: sqlite3.Cursor, one: KeptIncident, number: int | None) -> int:
    """Write an incident; return its number, which is the given one or a new one."""
    values = [
        json.dumps(value, ensure_ascii=False) if name in _JSON else value
        for name in _COLUMNS
        for value in (getattr(one, name),)
    ]
    places = ", ".join("?" * (len(_COLUMNS) + 1))
    cursor.execute(f"INSERT INTO incident (id, {', '.join(_COLUMNS)}) VALUES ({places})", [number, *values])
    made = int(cursor.lastrowid or 0)
    cursor.executemany(
        f"INSERT INTO culprit (incident, {', '.join(SUSPECT)}) VALUES ({', '.join('?' * (len(SUSPECT) + 1))})",
        [(made, *(getattr(who, name) for name in SUSPECT)) for who in one.culprits],
    )
    cursor.executemany(
        "INSERT INTO input (incident, path, bytes, lines, first_mark, marks) VALUES (?, ?, ?, ?, ?, ?)",
        [
            (made, log.path, log.bytes, log.lines, log.marks[0] if log.marks else None, _BETWEEN.join(log.marks))
            for log in one.inputs
        ],
    )
    return made


def select(
    connection: sqlite3.Connection, where: str, values: Sequence[Any], *, inputs: bool = False
) -> list[KeptIncident]:
    """Return the incidents that ``where`` selects; raises ValueError or TypeError for invalid values."""
    found = connection.execute(f"SELECT id, {', '.join(_COLUMNS)} FROM incident {where}", values).fetchall()
    wanted = {int(row[0]) for row in found}
    culprits = _culprits(connection, wanted)
    return [
        incident(
            int(row[0]),
            dict(zip(_COLUMNS, row[1:], strict=True)),
            tuple(culprits.get(int(row[0]), ())),
            tuple(_inputs(connection, int(row[0]))) if inputs else (),
        )
        for row in found
    ]


def marks_of(connection: sqlite3.Connection, number: int) -> list[list[str]]:
    """Return the marks of the logs of one incident."""
    found = connection.execute("SELECT marks FROM input WHERE incident = ?", (number,))
    return [str(text).split(_BETWEEN) for (text,) in found if text]


def _culprits(connection: sqlite3.Connection, wanted: set[int]) -> dict[int, list[KeptSuspect]]:
    """Return the culprits by incident: queried one by one for a few incidents, in one scan for many."""
    query = f"SELECT incident, {', '.join(SUSPECT)} FROM culprit"
    made: dict[int, list[KeptSuspect]] = defaultdict(list)
    if len(wanted) <= 8:
        found = [row for number in wanted for row in connection.execute(f"{query} WHERE incident = ?", (number,))]
    else:
        found = connection.execute(f"{query} ORDER BY rowid").fetchall()
    for row in found:
        if row[0] in wanted:
            made[int(row[0])].append(suspect(*row[1:]))
    return made


def suspect(host: Any, rank: Any, gpu: Any, address: Any, pid: Any, pci: Any) -> KeptSuspect:
    """Return a suspect of values that stand in a file; raises ValueError or TypeError for those that cannot be."""
    return KeptSuspect(_text(host), _whole(rank), _whole(gpu), _text(address), _whole(pid), _text(pci))


def _inputs(connection: sqlite3.Connection, number: int) -> list[Input]:
    query = "SELECT path, bytes, lines, marks FROM input WHERE incident = ? ORDER BY rowid"
    return [
        Input(str(path), int(size), int(lines), tuple(str(marks).split(_BETWEEN)) if marks else ())
        for path, size, lines, marks in connection.execute(query, (number,))
    ]


def incident(
    number: int, row: dict[str, Any], culprits: tuple[KeptSuspect, ...], inputs: tuple[Input, ...]
) -> KeptIncident:
    """Return an incident of the values of its row; raises ValueError or TypeError for those that cannot be."""
    hosts, software = json.loads(row["hosts"]), json.loads(row["software"])
    return KeptIncident(
        verdict=str(row["verdict"]),
        happened=_time(row["happened"]),
        recorded=_time(row["recorded"]),
        dated=bool(row["dated"]),
        cause=_text(row["cause"]),
        family=_text(row["family"]),
        status=_text(row["status"]),
        confidence=None if row["confidence"] is None else float(row["confidence"]),
        headline=str(row["headline"]),
        headline_zh=str(row["headline_zh"]),
        world_size=_whole(row["world_size"]),
        launcher=_text(row["launcher"]),
        hosts=tuple(str(host) for host in hosts),
        host_count=int(row["host_count"]),
        software={str(name): str(value) for name, value in dict(software).items()},
        tool=str(row["tool"]),
        job=_text(row.get("job")),
        job_id=_text(row.get("job_id")),
        command=_text(row.get("command")),
        bytes=int(row["bytes"]),
        lines=int(row["lines"]),
        culprits=culprits,
        inputs=inputs,
        id=number,
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _time(value: Any) -> float:
    """Return a time that can be shown as a date; raises ValueError for others."""
    moment = float(value)
    if not 0 <= moment < 1e11:
        raise ValueError("no time")
    return moment
