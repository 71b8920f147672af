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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from recfusion.core.errors import InputError, WriteError
from recfusion.core.files import check_regular
from recfusion.server.event_kinds import WEIGHTS, Standing

_VERSION = "2"
_VERSIONS = 100  # of the placements that are kept
_UNERASED = "unerased"  # name of a state: the write-ahead log may hold deleted rows
_ERASE_SECONDS = 10.0  # that a deletion by a command waits for other readers
_TABLES = """
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, user TEXT NOT NULL, item TEXT NOT NULL, kind TEXT NOT NULL,
    time REAL NOT NULL, received REAL NOT NULL, recommendation TEXT, quantity REAL, price REAL, key TEXT
);
CREATE INDEX IF NOT EXISTS events_of_user ON events (user, id);
CREATE INDEX IF NOT EXISTS events_by_age ON events (received);
CREATE UNIQUE INDEX IF NOT EXISTS events_by_key ON events (key) WHERE key IS NOT NULL;
CREATE TABLE IF NOT EXISTS changes (
    item TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, number INTEGER NOT NULL, time REAL NOT NULL,
    PRIMARY KEY (item, name)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS changes_by_number ON changes (number);
CREATE TABLE IF NOT EXISTS shown (
    day INTEGER NOT NULL, model TEXT NOT NULL, placement TEXT NOT NULL, bucket INTEGER NOT NULL,
    lists INTEGER NOT NULL, PRIMARY KEY (day, model, placement, bucket)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS exposures (
    day INTEGER NOT NULL, item TEXT NOT NULL, lists INTEGER NOT NULL, PRIMARY KEY (day, item)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS placements (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, change TEXT NOT NULL, tables TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS shown_items (
    user TEXT NOT NULL, item TEXT NOT NULL, time REAL NOT NULL, lists INTEGER NOT NULL, PRIMARY KEY (user, item)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS forgotten (user BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Event:
    """An action of a user with an item."""

    user: str
    item: str
    kind: str = "have"
    time: float | None = None  # seconds since 1970; now if None
    recommendation: str | None = None  # id of the list that led to it
    quantity: float | None = None
    price: float | None = None  # of one unit
    key: str | None = None  # a repeated event with the same key is stored once


@dataclass(frozen=True)
class UserItems:
    """The items that a user has by the events, with the times of their purchases, and those given back, with a time."""

    have: dict[str, list[float]]
    returned: dict[str, float]


@dataclass(frozen=True)
class Change:
    """A new value of an item's column, and when it was set."""

    item: str
    name: str
    value: Any
    time: float


def _read_value(text: str) -> Any:
    """Return a stored value; one that is damaged becomes a list, which fits no column."""
    try:
        return json.loads(text)
    except ValueError:
        return []


def _checkpoint(db: sqlite3.Connection) -> bool:
    """Copy the write-ahead log into the file and truncate it; return whether that succeeded."""
    try:
        busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError:  # locked
        return False
    return not busy


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
            if self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'state'").fetchone() is None:
                with self.writing():
                    self._make_tables()
            self._salt = bytes.fromhex(str(self.state("salt")))
            self.weights: dict[str, float] = WEIGHTS | json.loads(self.state("weights") or "{}")  # of kinds of events
        except InputError:
            raise
        except (OSError, sqlite3.Error, ValueError) as error:  # ValueError: a damaged salt or schema
            message = f"Cannot store events in '{path}' ({error}): name a writable file with --events."
            raise WriteError(message, "events") from None
        if self.state("version") != _VERSION:
            message = f"The file '{path}' was written by another version: name a new one with --events."
            raise InputError(message, "events")

    def _make_tables(self) -> None:
        for statement in _TABLES.split(";"):
            self._db.execute(statement)
        self._db.execute("INSERT OR IGNORE INTO state VALUES ('version', ?)", (_VERSION,))
        self._db.execute("INSERT OR IGNORE INTO state VALUES ('salt', ?)", (secrets.token_hex(16),))

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def undamaged(self) -> Iterator[None]:
        """Turn an error that damaged rows cause into one sentence."""
        try:
            yield
        except InputError:
            raise
        except (sqlite3.Error, TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            cause = error if isinstance(error, sqlite3.Error) else type(error).__name__
            raise InputError(
                f"The file of events '{self.path}' has damaged rows ({cause}): use a backup of it.", "events"
            ) from None

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

    def attempt(self, job: Callable[["Store"], Any]) -> Any:
        """Return the result of a job within a transaction, or its InputError after what it wrote was undone."""
        self._db.execute("SAVEPOINT job")
        try:
            result = job(self)
        except InputError as error:
            self._db.execute("ROLLBACK TO job")
            result = error
        self._db.execute("RELEASE job")
        return result

    def add(self, events: Iterable[Event]) -> int:
        """Record events, in their order; return how many are new. An event whose key is stored is a retry."""
        now, new = time.time(), 0
        query = """INSERT INTO events (user, item, kind, time, received, recommendation, quantity, price, key)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) WHERE key IS NOT NULL DO NOTHING"""
        for e in events:
            when = now if e.time is None else e.time
            row = (e.user, e.item, e.kind, when, now, e.recommendation, e.quantity, e.price, e.key)
            stored = self._db.execute(query, row).rowcount
            new += stored
            if not stored:
                same = self._db.execute("SELECT user, item, kind FROM events WHERE key = ?", (e.key,)).fetchone()
                if same != (e.user, e.item, e.kind):
                    problem = "Expected a new key for a new event, got the key of another event: send it with its own."
                    raise InputError(problem, "idempotency_key")
        return new

    def user_items(self, user: str) -> UserItems:
        """Return the items that a user has by the recorded events, and those given back."""
        found: dict[str, Standing] = {}
        query = "SELECT item, kind, time, quantity FROM events WHERE user = ? ORDER BY id"
        for item, kind, when, quantity in self._db.execute(query, (user,)):
            if found.setdefault(item, Standing()).add(self.weights.get(kind, 0.0), when, quantity):
                found[item] = found.pop(item)  # in the order of the last events
        return UserItems(
            {item: one.times for item, one in found.items() if one.has},
            {item: one.time for item, one in found.items() if one.has is False},
        )

    def changed_users(self, after: int, since: float, most: int) -> tuple[list[str], int, float]:
        """Return the users of the next events, at most so many, and the number and the arrival of the last of them.

        An event is new if its number is above `after`, or if it arrived after `since`: SQLite gives the numbers of
        deleted events to later ones.
        """
        query = "SELECT user, id, received FROM events WHERE id > ? OR received > ? ORDER BY id LIMIT ?"
        rows = self._db.execute(query, (after, since, most)).fetchall()
        users = list(dict.fromkeys(str(user) for user, _, _ in rows))
        return users, int(rows[-1][1]) if rows else after, max((float(row[2]) for row in rows), default=since)

    def users_of(self, items: Sequence[str]) -> list[str]:
        """Return the users with events of these items."""
        query = "SELECT DISTINCT user FROM events WHERE item IN (SELECT value FROM json_each(?))"
        return [str(user) for (user,) in self._db.execute(query, (json.dumps(list(items)),))]

    def forget(self, user: str) -> int:
        """Delete a user's events; a digest records that other data about the user must not be used.

        Returns the number of deleted events.
        """
        deleted = self._db.execute("DELETE FROM events WHERE user = ?", (user,)).rowcount
        self._db.execute("DELETE FROM shown_items WHERE user = ?", (user,))
        self._db.execute("INSERT OR IGNORE INTO forgotten VALUES (?)", (self.digest(user),))
        self.set_state(_UNERASED, secrets.token_hex(8))
        return int(deleted)

    def forget_for_good(self, users: Iterable[str]) -> int:
        """Delete the events of users, also from the write-ahead log; return the number of deleted events."""
        with self.writing():
            deleted = sum(map(self.forget, users))
        if not self.erase(_ERASE_SECONDS):
            raise WriteError(
                f"The events are deleted ({deleted:,}), but the write-ahead log of '{self.path}' still holds them, "
                "because another program reads the file: end it and run this command again. A running service tries "
                "again by itself.",
                "file",
            )
        return deleted

    def is_forgotten(self, user: str) -> bool:
        found = self._db.execute("SELECT 1 FROM forgotten WHERE user = ?", (self.digest(user),)).fetchone()
        return found is not None

    def is_erased(self) -> bool:
        """Return whether deleted rows are gone from the write-ahead log too."""
        return self.state(_UNERASED) is None

    def erase(self, seconds: float) -> bool:
        """Remove deleted rows from the write-ahead log; return whether it succeeded in this time.

        It fails while another connection reads an older state. It has a connection of its own with a short time limit:
        a checkpoint that waits for readers keeps others from writing, and from using its connection.
        """
        until, deletion = time.monotonic() + seconds, self.state(_UNERASED)
        with closing(sqlite3.connect(self.path, timeout=0.05, isolation_level=None)) as own:
            while not _checkpoint(own):
                if time.monotonic() >= until:
                    return False
                time.sleep(0.1)
            own.execute("PRAGMA busy_timeout = 10000")
            # A deletion since then has another value, and needs another checkpoint.
            own.execute("DELETE FROM state WHERE name = ? AND value = ?", (_UNERASED, deletion))
        return True

    def expire(self, days: float) -> int:
        """Delete events received more than `days` ago, and what was shown before; return how many events."""
        oldest = time.time() - 86400 * days
        for table in ("shown", "exposures"):
            self._db.execute(f"DELETE FROM {table} WHERE day < ?", (oldest // 86400,))
        shown = self._db.execute("DELETE FROM shown_items WHERE time < ?", (oldest,)).rowcount
        deleted = int(self._db.execute("DELETE FROM events WHERE received < ?", (oldest,)).rowcount)
        if deleted or shown:
            self.set_state(_UNERASED, secrets.token_hex(8))
        return deleted

    def digest(self, user: str) -> bytes:
        """Return a keyed digest that replaces a user's id."""
        return hashlib.blake2b(user.encode(), digest_size=16, key=self._salt).digest()

    def change(self, items: Mapping[str, Mapping[str, Any]]) -> int:
        """Record new values of item columns; return the number of the change."""
        number, now = self._next_change(), time.time()
        rows = [
            (item, name, json.dumps(value), number, now) for item, own in items.items() for name, value in own.items()
        ]
        self._db.executemany("INSERT OR REPLACE INTO changes VALUES (?, ?, ?, ?, ?)", rows)
        return number

    def clear_changes(self, items: Sequence[str] = (), names: Sequence[str] = ()) -> int:
        """Delete changed values, of some items or columns if they are given; return how many."""
        self.set_state("cleared", str(self._next_change()))
        query = """DELETE FROM changes WHERE (?1 = '[]' OR item IN (SELECT value FROM json_each(?1)))
            AND (?2 = '[]' OR name IN (SELECT value FROM json_each(?2)))"""
        return int(self._db.execute(query, (json.dumps(list(items)), json.dumps(list(names)))).rowcount)

    def _next_change(self) -> int:
        number = self.last_change() + 1
        self.set_state("change", str(number))
        return number

    def last_change(self) -> int:
        """Return the number of the last change of item columns, 0 if there is none."""
        return int(self.state("change") or 0)

    def last_clear(self) -> int:
        """Return the number of the last deletion of changes, 0 if there is none."""
        return int(self.state("cleared") or 0)

    def changes(self, after: int = 0) -> list[Change]:
        """Return the changes of item columns after a number, in their order."""
        query = "SELECT item, name, value, time FROM changes WHERE number > ? ORDER BY number"
        return [
            Change(item, name, _read_value(text), when) for item, name, text, when in self._db.execute(query, (after,))
        ]

    def add_shown(self, lists: Mapping[tuple[int, str, str, int], int], items: Mapping[tuple[int, str], int]) -> None:
        """Add numbers of lists by (day, model, placement, bucket of users), and of lists with an item by day."""
        upsert = "ON CONFLICT DO UPDATE SET lists = lists + excluded.lists"
        shown, exposed = ([(*key, n) for key, n in counts.items()] for counts in (lists, items))
        self._db.executemany(f"INSERT INTO shown VALUES (?, ?, ?, ?, ?) {upsert}", shown)
        self._db.executemany(f"INSERT INTO exposures VALUES (?, ?, ?) {upsert}", exposed)

    def placements(self) -> list[tuple[int, float, str, dict[str, Any]]]:
        """Return the versions of the placements, the newest first: number, time, kind of change, tables."""
        rows = self._db.execute("SELECT number, time, change, tables FROM placements ORDER BY number DESC")
        return [(number, when, change, _read_value(text)) for number, when, change, text in rows]

    def last_placements(self) -> int:
        """Return the number of the newest version of the placements, 0 if there is none."""
        return int(self._db.execute("SELECT coalesce(max(number), 0) FROM placements").fetchone()[0])

    def set_placements(self, tables: Mapping[str, Any], change: str) -> int:
        """Store a version of the placements; return its number. The last 100 are kept."""
        number = self.last_placements() + 1
        row = (number, time.time(), change, json.dumps(tables))
        self._db.execute("INSERT INTO placements VALUES (?, ?, ?, ?)", row)
        self._db.execute("DELETE FROM placements WHERE number <= ?", (number - _VERSIONS,))
        return number

    def remember_shown(self, user: str, items: Iterable[str], when: float) -> None:
        """Record that a user was shown items."""
        query = """INSERT INTO shown_items VALUES (?, ?, ?, 1)
            ON CONFLICT DO UPDATE SET time = max(time, excluded.time), lists = lists + 1"""
        self._db.executemany(query, [(user, item, when) for item in items])

    def shown_to(self, user: str) -> dict[str, tuple[float, int]]:
        """Return the items that a user was shown: when last, and in how many lists."""
        found = self._db.execute("SELECT item, time, lists FROM shown_items WHERE user = ?", (user,))
        return {item: (when, lists) for item, when, lists in found}

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
