"""Tasks of the preparation, each on one bucket of users: remove duplicates, count, filter, write.

A user is in exactly one bucket, so users are counted and dropped there; the driver counts items over all buckets.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from recfusion.core.files import replacing
from recfusion.core.parquet import read_parquet
from recfusion.data.rating_scale import Scale
from recfusion.data.reading.formats import table_writer
from recfusion.data.rows import Rows, drop_duplicates, encode_rows
from recfusion.spark.file_parts import BucketedTable
from recfusion.spark.record_batches import read_batches, write_batches


@dataclass(frozen=True)
class Unique:
    """The task that writes a bucket without duplicates, and its counts."""

    table: BucketedTable
    folder: Path
    added: bool

    def file(self, number: int) -> Path:
        return self.folder / f"{number:05d}.arrow"

    def __call__(self, number: int) -> None:
        rows, users, items = encode_rows(self.table.rows(number), {})
        rows.order()
        drop_duplicates(rows, added=self.added)
        columns = {name: getattr(rows, name) for name in self.table.dtypes}
        for role, ids in (("user", users), ("item", items)):
            columns[role] = pa.DictionaryArray.from_arrays(
                columns[role], ids.to_arrow(compat_level=pl.CompatLevel.oldest())
            )
        scale = Scale.of(rows.rating, self.table.report.columns.get("rating"), added=self.added)
        about = {"rows": len(rows.user), "users": len(users), "scale": None if scale is None else asdict(scale)}
        write_batches(self.file(number), [pa.record_batch(columns)], lambda: about)


@dataclass(frozen=True)
class Filters:
    """The filters of a preparation that are known so far, applied to the files of `Unique`."""

    unique: Unique
    threshold: float | None  # of ratings
    least: int  # items of a user
    rounds: tuple[Path, ...] = ()  # tables of the items that stay, each after dropping users with few items

    def rows(self, number: int) -> tuple[Rows, pl.Series, pl.Series]:
        """Return the remaining rows of a bucket, encoded, and the ids of users and items."""
        [found] = read_batches(self.unique.file(number))
        user, item = found["user"], found["item"]
        rating, time = (
            found[name].to_numpy() if name in self.unique.table.dtypes else None for name in ("rating", "time")
        )
        sizes = len(user.dictionary), len(item.dictionary)
        rows = Rows(user.indices.to_numpy(), item.indices.to_numpy(), rating, time, *sizes)
        items = pl.Series("item", item.dictionary)
        if self.threshold is not None and rows.rating is not None:
            rows.keep(rows.rating >= np.float32(self.threshold))
        for file in self.rounds:
            rows.keep_users(rows.per_user >= self.least)
            rows.keep_items(items.is_in(read_parquet(file)["item"].implode()).to_numpy())
        return rows, pl.Series("user", user.dictionary), items


@dataclass(frozen=True)
class Count:
    """The task that counts a bucket before and after dropping users with few items."""

    filters: Filters
    folder: Path

    def file(self, number: int) -> Path:
        return self.folder / f"{number:05d}.parquet"

    def __call__(self, number: int) -> tuple[int, int]:
        rows, _, items = self.filters.rows(number)
        users, before = np.count_nonzero(rows.per_user), rows.per_item
        rows.keep_users(rows.per_user >= self.filters.least)
        with replacing(self.file(number)) as beside:
            pl.DataFrame({"item": items, "before": before, "n": rows.per_item}).write_parquet(beside)
        return int(users), int(np.count_nonzero(rows.per_user))


@dataclass(frozen=True)
class Write:
    """The task that writes some buckets, except one item; returns the number of users with and without it."""

    filters: Filters
    rarest: int | str | None
    folder: Path
    parts: int

    def __call__(self, part: int) -> tuple[int, int]:
        table, users = self.filters.unique.table, np.zeros(2, int)
        with table_writer(self.folder / f"part-{part:05d}.parquet") as write:
            for number in table.buckets[part :: self.parts]:
                rows, user_ids, item_ids = self.filters.rows(number)
                before = np.count_nonzero(rows.per_user)
                if self.rarest is not None:
                    rows.keep_items((item_ids != self.rarest).to_numpy())
                users += before, np.count_nonzero(rows.per_user)
                columns = {name: pl.Series(getattr(rows, name)) for name in table.dtypes}
                columns |= {"user": user_ids.gather(columns["user"]), "item": item_ids.gather(columns["item"])}
                write(pl.DataFrame(columns))
        return int(users[0]), int(users[1])
