"""Incidents as rows of the tables, and back: what a damaged or foreign file holds is checked on the way."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from nccl_triage.history.model import Incident, Input, Suspect

#: The columns of an incident that hold its fields of the same names; hosts and software are JSON.
_COLUMNS = tuple(one.name for one in fields(Incident) if one.name not in ("culprits", "inputs", "id"))
SUSPECT = tuple(one.name for one in fields(Suspect))
_JSON = ("hosts", "software")
#: Separates the marks of a log.
_BETWEEN = " "


def insert(cursor: sqlite3.Cursor, one: Incident, number: int | None) -> int:
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
) -> list[Incident]:
    """Return the incidents that ``where`` chooses; raises ValueError or TypeError for values that cannot be."""
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


def _culprits(connection: sqlite3.Connection, wanted: set[int]) -> dict[int, list[Suspect]]:
    """Return the culprits by incident: of a few asked one by one, of many in one sweep."""
    query = f"SELECT incident, {', '.join(SUSPECT)} FROM culprit"
    made: dict[int, list[Suspect]] = defaultdict(list)
    if len(wanted) <= 8:
        found = [row for number in wanted for row in connection.execute(f"{query} WHERE incident = ?", (number,))]
    else:
        found = connection.execute(f"{query} ORDER BY rowid").fetchall()
    for row in found:
        if row[0] in wanted:
            made[int(row[0])].append(suspect(*row[1:]))
    return made


def suspect(host: Any, rank: Any, gpu: Any, address: Any, pid: Any, pci: Any) -> Suspect:
    """Return a suspect of values that stand in a file; raises ValueError or TypeError for those that cannot be."""
    return Suspect(_text(host), _whole(rank), _whole(gpu), _text(address), _whole(pid), _text(pci))


def _inputs(connection: sqlite3.Connection, number: int) -> list[Input]:
    query = "SELECT path, bytes, lines, marks FROM input WHERE incident = ? ORDER BY rowid"
    return [
        Input(str(path), int(size), int(lines), tuple(str(marks).split(_BETWEEN)) if marks else ())
        for path, size, lines, marks in connection.execute(query, (number,))
    ]


def incident(number: int, row: dict[str, Any], culprits: tuple[Suspect, ...], inputs: tuple[Input, ...]) -> Incident:
    """Return an incident of the values of its row; raises ValueError or TypeError for those that cannot be."""
    hosts, software = json.loads(row["hosts"]), json.loads(row["software"])
    return Incident(
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
