"""Reads the rows of a query from PostgreSQL, SQLite or DuckDB through ADBC, as Arrow tables.

An address may hold a password, so it never appears in a message, a card or a log: `shown_address` does.
"""

import importlib
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import polars as pl

from recfusion.core.errors import InputError, choices

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_MODULES = {  # scheme -> module of its driver
    "postgresql": "adbc_driver_postgresql",
    "postgres": "adbc_driver_postgresql",
    "sqlite": "adbc_driver_sqlite",
    "duckdb": "duckdb",
}
FILE_SCHEMES = ("sqlite", "duckdb")
_SECRETS = ("password", "sslpassword", "passfile")  # parameters of an address


def is_database(data: str) -> bool:
    """Return whether a name of data is an address, such as postgresql://host/shop or sqlite:///shop.db."""
    return _ADDRESS.match(data) is not None


def shown_address(address: str) -> str:
    """Return an address without user, password, parameters and folders."""
    scheme, _, rest = address.partition("://")
    if scheme.lower() in FILE_SCHEMES:
        return f"{scheme}:///{Path(rest.partition('?')[0]).name}"
    host, slash, name = rest.rpartition("@")[2].partition("?")[0].partition("/")
    return f"{scheme}://{host}{slash}{name}"


class FetchedRows:
    """The rows of a query in batches: while one is parsed, a thread fetches the next; nothing is committed."""

    def __init__(self, address: str, query: str | None) -> None:
        scheme, self.where = address.partition("://")[0].lower(), shown_address(address)
        if scheme not in _MODULES:
            raise choices("kind of database", scheme, _MODULES, "data")
        if query is None or not query.strip():
            told = f'Expected --query "SELECT ..." for the rows of {self.where}, got nothing: add it.'
            raise InputError(told, "query")
        if find_spec("adbc_driver_manager") is None or find_spec(_MODULES[scheme]) is None:
            raise InputError("Reading from databases needs the extra 'database': pip install 'recfusion[database]'.")
        self._address, self._frames, self._open = address, list[pl.DataFrame](), ExitStack()
        self._pool = ThreadPoolExecutor(1)  # a connection belongs to one thread
        try:
            self._pool.submit(self._execute, scheme, query).result()
        except BaseException:
            self.close()
            raise
        self._next: Future[pl.DataFrame | None] | None = self._pool.submit(self._fetch)

    def batches(self) -> Iterator[pl.DataFrame]:
        """Yield all batches: first the ones in memory, then the others from the database."""
        for place in count():
            if place == len(self._frames):
                frame = None if self._next is None else self._next.result()
                self._next = None if frame is None else self._pool.submit(self._fetch)
                if frame is None:
                    return
                self._frames.append(frame)
            yield self._frames[place]

    def close(self) -> None:
        """End the connection."""
        self._pool.submit(self._open.close)
        self._pool.shutdown()

    def _execute(self, scheme: str, query: str) -> None:
        from adbc_driver_manager import dbapi

        try:
            connection = self._open.enter_context(closing(dbapi.connect(**_connection(scheme, self._address))))
        except dbapi.Error as error:
            told = f"Cannot open {self.where} ({_reason(error, self._address)}): check the address."
            raise InputError(told, "data") from None
        with self._failing():
            cursor = self._open.enter_context(closing(connection.cursor()))
            cursor.execute(query)
            self._reader = cursor.fetch_record_batch()
        fields = self._reader.schema
        if not len(fields):
            raise InputError(
                f"Expected a query on {self.where} that returns rows, got a statement: use SELECT.", "query"
            )
        self.columns: list[str] = fields.names
        self._uuids = {field.name for field in fields if getattr(field.type, "extension_name", "") == "arrow.uuid"}

    def _fetch(self) -> pl.DataFrame | None:
        """Return the next rows; None after the last."""
        with self._failing():
            batch = next(self._reader, None)
            found = None if batch is None else pl.from_arrow(batch)
        if found is None:
            return None
        assert isinstance(found, pl.DataFrame)
        return found.select(
            _uuid_text(name) if name in self._uuids else _storage(found[name]) for name in found.columns
        )

    @contextmanager
    def _failing(self) -> Iterator[None]:
        from adbc_driver_manager import dbapi

        try:
            yield
        except (dbapi.Error, pl.exceptions.PolarsError, ValueError, TypeError, OSError) as error:
            told = f"The query on {self.where} failed ({_reason(error, self._address)}): correct it."
            raise InputError(told, "query") from None


def read_database(address: str, query: str | None) -> pl.DataFrame:
    """Return the rows of a query; nothing that it changes is committed."""
    with closing(FetchedRows(address, query)) as rows:
        found = list(rows.batches())
        return pl.concat(found) if found else pl.DataFrame(schema=rows.columns)


def _connection(scheme: str, address: str) -> dict[str, Any]:
    """Return the arguments of ADBC for an address; files are opened for reading."""
    module = importlib.import_module(_MODULES[scheme])
    if scheme.startswith("postgres"):
        return {"driver": module._driver_path(), "db_kwargs": {"uri": address}}
    path = Path(unquote(urlsplit(address).path).removeprefix("/")) if ":///" in address else Path(address[9:])
    if not path.is_file():
        raise InputError(f"Expected a database file at '{path}', got nothing: check the address.", "data")
    if scheme == "sqlite":
        return {"driver": module._driver_path(), "db_kwargs": {"uri": f"{path.absolute().as_uri()}?mode=ro"}}
    driver = importlib.import_module("adbc_driver_duckdb").driver_path()
    options = {"path": str(path), "access_mode": "READ_ONLY", "autoinstall_known_extensions": "false"}
    return {"driver": driver, "entrypoint": "duckdb_adbc_init", "db_kwargs": options}


def _storage(column: pl.Series) -> pl.Series:
    """Return numerics and other values that polars has no type for as the texts in which the driver stores them."""
    return column.ext.storage() if isinstance(column.dtype, pl.BaseExtension) else column


def _uuid_text(name: str) -> pl.Expr:
    """Return UUIDs, which are 16 bytes, as texts."""
    digits, cuts = pl.col(name).bin.encode("hex"), ((0, 8), (8, 4), (12, 4), (16, 4), (20, 12))
    return pl.concat_str([digits.str.slice(*cut) for cut in cuts], separator="-").alias(name)


def _reason(error: Exception, address: str) -> str:
    """Return the first line of an error without the secrets of the address."""
    line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    text = re.sub(r"^[A-Z_]+: |\[libpq\] |Failed to (connect|prepare query): ", "", line).strip().rstrip(".")
    user = address.partition("://")[2].rpartition("@")[0]
    given = [value for key, value in parse_qsl(address.partition("?")[2]) if key in _SECRETS]
    secrets = {address, user, user.partition(":")[2], *given}
    for secret in sorted(filter(None, secrets | {unquote(one) for one in secrets}), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text[:300]
