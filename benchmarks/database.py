"""Seconds to read a table of PostgreSQL beside a Parquet file of the same rows, in the same run.

    python benchmarks/database.py postgresql://USER:PASSWORD@HOST/NAME --rows 5000000 --out benchmarks/database.json

It writes the rows into a new table of that database and drops the table in the end. Readings take turns. All of
them are stored, since the best one alone hides how much they differ; the ratio is that of the medians.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from adbc_driver_postgresql import dbapi

from recfusion.data.load import load
from recfusion.data.options import Source

TABLE = "recfusion_benchmark"


def make_rows(n: int) -> pl.DataFrame:
    """Return orders with ids of customers as texts, and of products as numbers."""
    rng = np.random.default_rng(0)
    customers = pl.Series(rng.zipf(1.3, n) % max(10, n // 12)).cast(pl.String)
    return pl.DataFrame(
        {
            "customer": "c" + customers,
            "product": (rng.zipf(1.2, n) % max(10, n // 100)).astype(np.int32),
            "time": 1_600_000_000 + np.sort(rng.integers(0, 10**8, n)),
        }
    )


def timed(source: Source) -> tuple[float, str]:
    """Return the seconds of reading and preparing a source, and the fingerprint of its interactions."""
    began = time.perf_counter()
    fingerprint = load(source).fingerprint
    return time.perf_counter() - began, fingerprint


def main() -> None:
    """Write the rows, read both in turns, and print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = make_rows(given.rows)
    with tempfile.TemporaryDirectory() as folder, dbapi.connect(given.address) as connection:
        with connection.cursor() as cursor:
            cursor.adbc_ingest(TABLE, rows.to_arrow(), mode="create")
            connection.commit()
        try:
            file = Path(folder) / "orders.parquet"
            rows.write_parquet(file)
            query = f"SELECT customer, product, time FROM {TABLE}"
            sources = {"parquet": Source(data=str(file)), "postgresql": Source(data=given.address, query=query)}
            runs = [{name: timed(source) for name, source in sources.items()} for _ in range(given.times)]
        finally:
            with connection.cursor() as cursor:
                cursor.execute(f"DROP TABLE {TABLE}")
                connection.commit()
    found: dict[str, Any] = {"rows": given.rows}
    found |= {name: [round(run[name][0], 2) for run in runs] for name in sources}
    found["ratio_of_medians"] = round(float(np.median(found["postgresql"]) / np.median(found["parquet"])), 2)
    found["ratio_of_best"] = round(min(found["postgresql"]) / min(found["parquet"]), 2)
    found["same"] = len({one[1] for run in runs for one in run.values()}) == 1
    print(json.dumps(found))
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
