"""The tables: every old version becomes today's, foreign and newer ones are refused, and the page tells the truth."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from nccl_triage.errors import UsageError
from nccl_triage.history import schema, store

from .made import failed

ROOT = Path(__file__).parents[2]


def tables(connection: sqlite3.Connection) -> dict[str, list[tuple[str, str]]]:
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return {
        name: [(row[1], row[2]) for row in connection.execute(f"PRAGMA table_info({name})")]
        for (name,) in names.fetchall()
    }


def old(path: Path, version: int) -> None:
    """Make a database as the program of that version left it."""
    connection = sqlite3.connect(path, isolation_level=None)
    schema.migrate(connection, schema.MIGRATIONS[:version])
    connection.close()


@pytest.mark.parametrize("version", range(len(schema.MIGRATIONS) + 1))
def test_every_old_version_is_brought_up_to_date_and_can_be_used(tmp_path: Path, version: int) -> None:
    path, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    if version:
        old(path, version)
    else:
        path.touch()
    with store.readable(path) or pytest.fail("it is there") as history:
        assert history.incidents() == []
    before = path.read_bytes()
    with store.writable(path) as history, store.writable(new) as fresh:
        history.keep(failed())
        fresh.keep(failed())
    one, two = sqlite3.connect(path), sqlite3.connect(new)
    assert tables(one) == tables(two)
    assert one.execute("PRAGMA user_version").fetchone() == (len(schema.MIGRATIONS),)
    assert before == path.read_bytes()[:0] or version, "reading changed nothing, writing did"


def test_a_further_migration_keeps_what_is_stored_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    with store.writable(path) as history:
        number = history.keep(failed())
    connection = sqlite3.connect(path, isolation_level=None)
    broken = (*schema.MIGRATIONS, ("ALTER TABLE incident ADD COLUMN site TEXT", "ALTER TABLE nothing ADD COLUMN x"))
    with pytest.raises(sqlite3.OperationalError):
        schema.migrate(connection, broken)
    assert schema.version(connection) == len(schema.MIGRATIONS)
    assert "site" not in {name for name, _ in tables(connection)["incident"]}
    further = (*schema.MIGRATIONS, ("ALTER TABLE incident ADD COLUMN site TEXT DEFAULT 'here'",))
    schema.migrate(connection, further)
    assert connection.execute("SELECT id, site FROM incident").fetchall() == [(number, "here")]
    with pytest.raises(UsageError, match="newer nccl-triage"):
        schema.migrate(connection)


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "places.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.commit()
    before = path.read_bytes()
    for opened in (store.readable, store.writable):
        with pytest.raises(UsageError, match="another program"):
            opened(path)
    assert path.read_bytes() == before


def test_the_documented_schema_is_the_real_one(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "history.md").read_text(encoding="utf-8")
    documented: dict[str, list[tuple[str, str]]] = {}
    for name, body in re.findall(r"^### `(\w+)`\n(.*?)(?=^#|\Z)", text, re.DOTALL | re.MULTILINE):
        documented[name] = re.findall(r"^\| `(\w+)` \| (\w+) \|", body, re.MULTILINE)
    with store.writable(tmp_path / "history.sqlite"):
        pass
    assert documented == tables(sqlite3.connect(tmp_path / "history.sqlite"))
    assert f"`PRAGMA user_version` is {len(schema.MIGRATIONS)}" in text
    assert f"`PRAGMA application_id` is {schema.APPLICATION}" in text
