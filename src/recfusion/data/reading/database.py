"""Reads the rows of a query from PostgreSQL, SQLite or DuckDB through ADBC, as Arrow tables.

An address may hold a password, so it never appears in a message, a card or a log: `shown_address` does.
"""

import importlib
import re
from contextlib import ExitStack, closing
from importlib.util import find_spec
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


def read_database(address: str, query: str | None) -> pl.DataFrame:
    """Return the rows of a query; nothing that it changes is committed."""
    scheme, shown = address.partition("://")[0].lower(), shown_address(address)
    if scheme not in _MODULES:
        raise choices("kind of database", scheme, _MODULES, "data")
    if query is None or not query.strip():
        raise InputError(f'Expected --query "SELECT ..." for the rows of {shown}, got nothing: add it.', "query")
    if find_spec("adbc_driver_manager") is None or find_spec(_MODULES[scheme]) is None:
        raise InputError("Reading from databases needs the extra 'database': pip install 'recfusion[database]'.")
    from adbc_driver_manager import dbapi

    with ExitStack() as stack:
        try:
            connection = stack.enter_context(closing(dbapi.connect(**_connection(scheme, address))))
        except dbapi.Error as error:
            raise InputError(f"Cannot open {shown} ({_reason(error, address)}): check the address.", "data") from None
        try:
            cursor = stack.enter_context(closing(connection.cursor()))
            cursor.execute(query)
            table = cursor.fetch_arrow_table()
            found = pl.from_arrow(table)
        except (dbapi.Error, pl.exceptions.PolarsError, ValueError, TypeError) as error:
            raise InputError(f"The query on {shown} failed ({_reason(error, address)}): correct it.", "query") from None
    assert isinstance(found, pl.DataFrame)
    if not found.width:
        raise InputError(f"Expected a query on {shown} that returns rows, got a statement: use SELECT.", "query")
    uuids = {field.name for field in table.schema if getattr(field.type, "extension_name", "") == "arrow.uuid"}
    return found.select(_uuid_text(name) if name in uuids else _storage(found[name]) for name in found.columns)


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
