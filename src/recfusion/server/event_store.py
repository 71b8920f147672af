"""The SQLite file of a running service: events, changed item columns, and counts of lists shown.

Only its owner may read the file. Acknowledged writes are on disk, so a process may be killed at any time. Several
processes may use one file.
"""

import hashlib
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from recfusion.core.errors import InputError, WriteError
from recfusion.core.files import check_regular

Kind = Literal["have", "click", "return"]
_VERSION = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, user TEXT NOT NULL, item TEXT NOT NULL, kind TEXT NOT NULL,
    time REAL NOT NULL, received REAL NOT NULL, recommendation TEXT
);
CREATE INDEX IF NOT EXISTS events_of_user ON events (user, id);
CREATE INDEX IF NOT EXISTS events_by_age ON events (received);
CREATE TABLE IF NOT EXISTS changes (
    item TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (item, name)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS changes_by_number ON changes (number);
CREATE TABLE IF NOT EXISTS shown (
    day INTEGER NOT NULL, model TEXT NOT NULL, bucket INTEGER NOT NULL, lists INTEGER NOT NULL,
    PRIMARY KEY (day, model, bucket)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS forgotten (user BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Event:
    """An action of a user with an item."""

    user: str
    item: str
    kind: Kind = "have"
    time: float | None = None  # seconds since 1970; now if None
    recommendation: str | None = None  # id of the list that led to it


@dataclass(frozen=True)
class UserItems:
    """The items that a user has by the events, and those given back, each with the time of its last event."""

    have: dict[str, float]
    returned: dict[str, float]


def _make_private(path: Path) -> None:
    """Create an empty file that only its owner may read, since SQLite would create one that everybody may read.

    An existing file is not opened: closing it would release the locks that SQLite holds on it in this process.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)


class Store:
    """A connection to the file; each thread needs its own."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        if not create and not path.is_file():
            raise InputError(f"Expected a file of events at '{path}', found none: name the file that serve wrote.")
        try:
            if create:
                path.parent.mkdir(parents=True, exist_ok=True)
                if path.exists():
                    check_regular(path)
                _make_private(path)
            self._db = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON", "busy_timeout = 10000"):
                self._db.execute(f"PRAGMA {pragma}")
            with self.writing():
                for statement in _TABLES.split(";"):
                    self._db.execute(statement)
                self._db.execute("INSERT OR IGNORE INTO state VALUES ('version', ?)", (str(_VERSION),))
                self._db.execute("INSERT OR IGNORE INTO state VALUES ('salt', ?)", (secrets.token_hex(16),))
            self._salt = bytes.fromhex(str(self.state("salt")))
        except (OSError, sqlite3.Error) as error:
            message = f"Cannot store events in '{path}' ({error}): name a writable file with --events."
            raise WriteError(message, "events") from None
        if self.state("version") != str(_VERSION):
            message = f"The file '{path}' was written by another version: name a new one with --events."
            raise InputError(message, "events")

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run the block as one transaction; at its end it is on disk."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def add(self, events: Iterable[Event]) -> None:
        """Record events, in their order."""
        now = time.time()
        rows = [(e.user, e.item, e.kind, now if e.time is None else e.time, now, e.recommendation) for e in events]
        query = "INSERT INTO events (user, item, kind, time, received, recommendation) VALUES (?, ?, ?, ?, ?, ?)"
        self._db.executemany(query, rows)

    def user_items(self, user: str) -> UserItems:
        """Return the items that a user has by the recorded events, and those given back."""
        have: dict[str, float] = {}
        returned: dict[str, float] = {}
        query = "SELECT item, kind, time FROM events WHERE user = ? ORDER BY id"
        for item, kind, when in self._db.execute(query, (user,)):
            if kind != "click":
                old, new = (returned, have) if kind == "have" else (have, returned)
                old.pop(item, None)
                new[item] = when
        return UserItems(have, returned)

    def forget(self, user: str) -> int:
        """Delete a user's events; a digest records that other data about the user must not be used.

        Returns the number of deleted events.
        """
        deleted = self._db.execute("DELETE FROM events WHERE user = ?", (user,)).rowcount
        self._db.execute("INSERT OR IGNORE INTO forgotten VALUES (?)", (self.digest(user),))
        return int(deleted)

    def is_forgotten(self, user: str) -> bool:
        found = self._db.execute("SELECT 1 FROM forgotten WHERE user = ?", (self.digest(user),)).fetchone()
        return found is not None

    def shrink(self) -> None:
        """Remove deleted rows from the write-ahead log too."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def expire(self, days: float) -> int:
        """Delete events received more than `days` ago and the counts of lists of that time; return how many events."""
        oldest = time.time() - 86400 * days
        self._db.execute("DELETE FROM shown WHERE day < ?", (oldest // 86400,))
        return int(self._db.execute("DELETE FROM events WHERE received < ?", (oldest,)).rowcount)

    def digest(self, user: str) -> bytes:
        """Return a keyed digest that replaces a user's id."""
        return hashlib.blake2b(user.encode(), digest_size=16, key=self._salt).digest()

    def change(self, items: Mapping[str, Mapping[str, Any]]) -> int:
        """Record new values of item columns; return the number of the change."""
        number = self.last_change() + 1
        rows = [(item, name, json.dumps(value), number) for item, own in items.items() for name, value in own.items()]
        self._db.executemany("INSERT OR REPLACE INTO changes VALUES (?, ?, ?, ?)", rows)
        return number

    def last_change(self) -> int:
        """Return the number of the last change of item columns, 0 if there is none."""
        return int(self._db.execute("SELECT coalesce(max(number), 0) FROM changes").fetchone()[0])

    def changes(self, after: int = 0) -> list[tuple[str, str, Any]]:
        """Return (item, column, value) of the changes after a number."""
        found = self._db.execute("SELECT item, name, value FROM changes WHERE number > ? ORDER BY number", (after,))
        return [(item, name, json.loads(value)) for item, name, value in found]

    def add_shown(self, counts: Mapping[tuple[int, str, int], int]) -> None:
        """Add numbers of lists shown, by (day, model, bucket of users)."""
        rows = [(*key, lists) for key, lists in counts.items()]
        query = "INSERT INTO shown VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET lists = lists + excluded.lists"
        self._db.executemany(query, rows)

    def state(self, name: str) -> str | None:
        """Return a value that all processes share, None if it is not set."""
        found = self._db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return None if found is None else str(found[0])

    def set_state(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))

    def states(self, prefix: str) -> dict[str, str]:
        """Return the shared values whose names start with a prefix."""
        found = self._db.execute("SELECT name, value FROM state WHERE substr(name, 1, ?) = ?", (len(prefix), prefix))
        return {str(name): str(value) for name, value in found}

    def drop_state(self, name: str) -> None:
        self._db.execute("DELETE FROM state WHERE name = ?", (name,))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._db.execute(query).fetchall()
