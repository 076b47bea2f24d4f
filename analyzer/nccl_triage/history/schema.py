"""The tables of the history, and how a database of an earlier version becomes one of today.

``PRAGMA user_version`` is the number of migrations that were applied; ``PRAGMA application_id`` tells our databases from
others. A migration is never changed once released: what is to be different is a further one. docs/history.md explains
every column, and a test keeps the two together.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from nccl_triage.errors import UsageError

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
)


def version(connection: sqlite3.Connection) -> int:
    """Return how many migrations a database has seen; raises UsageError for one that is not ours, or of a newer program."""
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
