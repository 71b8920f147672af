"""Rows from PostgreSQL, SQLite and DuckDB: the same as from a file, and no password in any message or file."""

import os
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl
import pytest
from adbc_driver_postgresql import dbapi

from recfusion.cli import main as cli
from recfusion.core.errors import InputError
from recfusion.data.load import load
from recfusion.data.options import Source
from recfusion.data.reading.database import read_database, shown_address

PASSWORD = "horse%20battery"  # its decoded form has a space
ROWS = [(f"c{n % 40}", f"p{n * 7919 % 31}", 1 + n % 5, 1_700_000_000 + 60 * n) for n in range(900)]
QUERY = "SELECT customer, product, rating, time FROM orders"


def binaries() -> Path | None:
    found = shutil.which("initdb")
    own = Path(found).resolve().parent if found else None
    for folder in (own, *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)):
        if folder is not None and (folder / "pg_ctl").is_file() and (folder / "postgres").is_file():
            return folder
    return None


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """Start a PostgreSQL server of its own with a password, and return its address."""
    programs = binaries()
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if programs is None or (as_user and subprocess.run([*as_user, "true"], capture_output=True).returncode):
        pytest.skip("PostgreSQL is not installed")
    base = Path(subprocess.run([*as_user, "mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    write = f"printf 'horse battery' > {base}/password"
    subprocess.run([*as_user, "sh", "-c", write], check=True)
    start = ["-D", f"{base}/data", "-A", "scram-sha-256", "-U", "shop", f"--pwfile={base}/password", "-N"]
    subprocess.run([*as_user, str(programs / "initdb"), *start], check=True, capture_output=True, timeout=120)
    options = f"-p {port} -k {base} -c listen_addresses=127.0.0.1 -c fsync=off"
    control = [*as_user, str(programs / "pg_ctl"), "-D", f"{base}/data", "-w", "-t", "60"]
    subprocess.run(
        [*control, "-o", options, "-l", f"{base}/log", "start"], check=True, capture_output=True, timeout=120
    )
    address = f"postgresql://shop:{PASSWORD}@127.0.0.1:{port}/postgres"
    try:
        with dbapi.connect(address) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE orders (customer text, product text, rating integer, time bigint)")
            cursor.adbc_ingest("orders", frame().to_arrow(), mode="append")
            connection.commit()
        yield address
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], capture_output=True, timeout=120)
        subprocess.run([*as_user, "rm", "-rf", str(base)], check=False)


def frame() -> pl.DataFrame:
    return pl.DataFrame(
        ROWS, schema={"customer": pl.String, "product": pl.String, "rating": pl.Int32, "time": pl.Int64}, orient="row"
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Write the orders as a Parquet file, a SQLite file and a DuckDB file, and return file and addresses."""
    base = tmp_path_factory.mktemp("databases")
    frame().write_parquet(base / "orders.parquet")
    with sqlite3.connect(base / "orders.db") as one:
        one.execute("CREATE TABLE orders (customer TEXT, product TEXT, rating INTEGER, time INTEGER)")
        one.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", ROWS)
    one.close()
    with duckdb.connect(str(base / "orders.duckdb")) as other:
        other.execute(f"CREATE TABLE orders AS SELECT * FROM '{base / 'orders.parquet'}'")
    return {
        "parquet": str(base / "orders.parquet"),
        "sqlite": f"sqlite:///{base}/orders.db",
        "duckdb": f"duckdb:///{base}/orders.duckdb",
    }


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "postgresql"])
def test_a_query_gives_the_interactions_of_a_file(
    files: dict[str, str], kind: str, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("postgres") if kind == "postgresql" else files[kind]
    expected, found = load(files["parquet"]), load(Source(data=address, query=QUERY))
    assert found.fingerprint == expected.fingerprint
    assert found.report.columns == expected.report.columns
    assert "horse" not in f"{found.name} {found.source} {found.report}"


def test_a_model_and_its_files_hold_no_password(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["recfusion", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        assert not stop.value.code, printed.err
        return printed.out + printed.err

    folder = tmp_path / "model"
    told = run("-v", "train", "ease", "--data", postgres, "--query", QUERY, "--out", str(folder))
    told += run("evaluate", str(folder), "--data", postgres)
    for text in (told, *(path.read_bytes().decode("latin-1") for path in folder.iterdir())):
        assert "horse" not in text
        assert "battery" not in text
    assert "ndcg@100" in told


def test_types_of_postgresql_become_ids_numbers_and_times(postgres: str) -> None:
    found = read_database(
        postgres,
        "SELECT '00000000-0000-0000-0000-00000000000a'::uuid AS a, 12.50::numeric AS b, now() AS c",
    )
    assert found.row(0)[0] == "00000000-0000-0000-0000-00000000000a"
    assert found.row(0)[1] == "12.50"
    assert found.schema["c"].is_temporal()


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        (None, "query", "Expected --query"),
        ("SELECT * FROM orders2", "query", '"orders2" does not exist'),
        ("SELEC 1", "query", "syntax error"),
        ("DROP TABLE orders", "query", "use SELECT"),
        ("SELECT '\\x01'::bytea AS customer, product FROM orders", "user", "got Binary"),
        ("SELECT ARRAY[1] AS customer, product FROM orders", "user", "got List"),
    ],
)
def test_wrong_queries_are_one_sentence_and_change_nothing(
    postgres: str, query: str | None, field: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        load(Source(data=postgres, query=query))
    assert refused.value.field == field
    assert "horse" not in str(refused.value)
    assert len(read_database(postgres, QUERY)) == len(ROWS)


def test_wrong_addresses_are_one_sentence_without_the_password(postgres: str) -> None:
    host = postgres.partition("@")[2]
    for address in (
        f"postgresql://shop:another-{PASSWORD}@{host}",
        f"postgresql://shop:{PASSWORD}%ZZ@{host}",
        f"postgresql://shop:{PASSWORD}@127.0.0.1:1/postgres",
        f"postgresql://shop:{PASSWORD}@{host}x",
        f"postgresql://127.0.0.1:1/postgres?user=shop&password={PASSWORD}",
        f"mysql://shop:{PASSWORD}@{host}",
    ):
        with pytest.raises(InputError) as refused:
            read_database(address, QUERY)
        assert refused.value.field == "data"
        assert "horse" not in str(refused.value)
        assert "\n" not in str(refused.value)


def test_files_are_opened_for_reading_and_must_exist(files: dict[str, str]) -> None:
    for kind in ("sqlite", "duckdb"):
        with pytest.raises(InputError, match="read"):
            read_database(files[kind], "DELETE FROM orders")
        assert len(read_database(files[kind], QUERY)) == len(ROWS)
        with pytest.raises(InputError, match="got nothing"):
            read_database(f"{files[kind]}x", QUERY)
    with pytest.raises(InputError, match="not a database"):
        read_database(files["duckdb"].replace("duckdb:///", "sqlite:///"), QUERY)


def test_an_address_is_shown_without_secrets_and_folders() -> None:
    assert shown_address("postgresql://shop:p@ss@db:5432/orders?password=x") == "postgresql://db:5432/orders"
    assert shown_address("sqlite:////srv/shop/orders.db") == "sqlite:///orders.db"
    source = Source(data="postgresql://shop:secret@db/orders", query=QUERY)
    assert source.absolute() == source
    assert source.shown().data == "postgresql://db/orders"
    with pytest.raises(InputError, match="Expected files") as refused:
        _ = source.files
    assert "secret" not in str(refused.value)


def test_a_query_needs_a_database(files: dict[str, str]) -> None:
    with pytest.raises(InputError, match="--query is for a database"):
        load(Source(data=files["parquet"], query=QUERY))
