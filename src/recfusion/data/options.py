"""The data options (source, preparation, split, signals), declared once; protocol cards and the CLI use them."""

import glob
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from recfusion.core.errors import InputError
from recfusion.data.reading.database import is_database, shown_address

PUBLISHED = "published"  # as a file of users: the one that is published with a named data set


class Source(BaseModel, frozen=True, extra="forbid"):
    """A data set: its name in the catalog, or a file with the columns to take."""

    data: str = Field(
        "ml-latest-small",
        description="a name of the catalog, or a CSV, TSV, Parquet, JSON lines or xlsx file; several files with commas "
        "or by a pattern such as 'orders-*.csv'",
    )
    user: str | None = Field(None, description="column of the user ids; guessed by default")
    item: str | None = Field(None, description="column of the item ids; guessed by default")
    rating: str | None = Field(None, description="column of the ratings; guessed by default; none: ignore ratings")
    time: str | None = Field(None, description="column of the timestamps; guessed by default; none: ignore them")
    rows: str | None = Field(
        None,
        description="read only rows that meet a condition on the columns, such as \"status != 'cancelled'\"; the "
        "language of --where",
    )
    query: str | None = Field(
        None,
        description="with a database as --data (postgresql://HOST/NAME, sqlite:///FILE, duckdb:///FILE): the SQL query "
        "whose rows are read",
    )
    separator: str | None = Field(None, description="separator of a text file; guessed by default")
    encoding: str | None = Field(
        None,
        description="encoding of the text files, such as cp1252; by default UTF-8, UTF-16 or Windows-1252, detected",
    )
    date_format: str | None = Field(
        None, description="form of the dates in text columns, such as %d/%m/%Y; found from the cells by default"
    )
    items: str | None = Field(None, description="a file about the items: titles, genres and other columns")
    users_file: str | None = Field(
        None, description=f"a file about the users, for user features; {PUBLISHED}: the one of ml-100k or ml-1m"
    )
    valid_file: str | None = Field(None, description="validation pairs of a given split, in the form of the data file")
    test_file: str | None = Field(
        None, description="test pairs of a given split (--split given), in the form of the data file"
    )
    feature_columns: str | None = Field(
        None,
        description="columns that become item features, separated by commas; all usable ones but stock, images and "
        "links by default",
    )
    roles: str | None = Field(
        None,
        description="columns of the item file with a role (title, price, stock, image, link, date, flag, text), as in "
        "price=Listenpreis,link=none; found by their names and values by default",
    )
    max_bad_share: float = Field(0.05, ge=0, le=1, description="largest accepted share of unusable rows")

    def moved_to(self, data: str) -> "Source":
        """Return the source of the same data elsewhere, without its item file; a file keeps its column options."""
        return (
            self.model_copy(update={"data": data, "items": None})
            if is_database(data) or Path(data).exists()
            else Source(data=data, users_file=self.users_file)
        )

    @property
    def label(self) -> str:
        """The data as messages name it: an address of a database has no password there."""
        return shown_address(self.data) if is_database(self.data) else self.data

    def absolute(self) -> "Source":
        """Return the source with absolute paths."""
        return self._with_paths(lambda path: str(Path(path).absolute()))

    def shown(self) -> "Source":
        """Return the source as cards show it: paths relative to the working folder, or the file name alone.

        Addresses of databases have no user and no password.
        """
        return self._with_paths(_shown_path)

    def _with_paths(self, change: Callable[[str], str]) -> "Source":
        more = {name: change(path) for name, path in self.other_paths.items()}
        data = ",".join(map(change, self._names()))
        if is_database(self.data):
            data = self.label if change is _shown_path else self.data
        return self.model_copy(update={"data": data} | more)

    @property
    def other_paths(self) -> dict[str, str]:
        """The files beside the data file, by the field that names them."""
        names = ("items", "users_file", "valid_file", "test_file")
        return {name: path for name in names if (path := getattr(self, name)) not in (None, PUBLISHED)}

    @property
    def files(self) -> list[str]:
        """The files of the data: one, or those between commas or of a pattern, in the order of their names."""
        if is_database(self.data):  # the message must not show a password
            raise InputError(f"Expected files, got the database {self.label}: export them first.", "data")
        found = [
            [name] if os.path.lexists(name) or not glob.has_magic(name) else sorted(glob.glob(name))  # noqa: PTH207
            for name in self._names()
        ]
        return list(dict.fromkeys(file for files in found for file in files)) or [self.data]

    def _names(self) -> list[str]:
        """Return the files and patterns between commas, unless a file has the whole name."""
        names = [name.strip() for name in self.data.split(",") if name.strip()]
        return [self.data] if "\0" in self.data or os.path.lexists(self.data) or not names else names


def _shown_path(path: str) -> str:
    """Return a path without details of the machine."""
    whole, here = Path(os.path.normpath(Path(path).absolute())), Path.cwd()
    return whole.relative_to(here).as_posix() if whole.is_relative_to(here) else whole.name


class Preparation(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Options of the preparation; the defaults are the paper's."""

    min_rating: float | Literal["auto"] | None = Field(
        "auto", description="keep ratings at or above this number; auto: 4 for stars, none otherwise; none: keep all"
    )
    min_items_per_user: int = Field(5, ge=0, description="drop users with fewer items")
    min_users_per_item: int = Field(5, ge=0, description="drop items with fewer users, counted after dropping users")
    k_core: bool = Field(False, description="repeat both filters until nothing changes (the paper filters once)")
    even_items: bool = Field(False, description="drop the least popular item if the number of items is odd")


class SplitPlan(BaseModel, frozen=True, extra="forbid"):
    """Options of the split; the defaults are the paper's."""

    kind: Literal["strong", "weak", "temporal", "global", "leave-one-out", "given"] = Field(
        "strong",
        description="strong: held-out users; weak: held-out items of every user; temporal (per-user temporal): "
        "held-out users, predict the last part of each history, while training covers all times; global: all users, "
        "train before one moment and test after it; leave-one-out: test the last item of every user with three items, "
        "and validate on the one before it, by time if there are times; given: the pairs of --test-file and "
        "--valid-file, or the published split of gowalla",
    )
    valid: float = Field(0.1, gt=0, lt=1, description="share of users (weak: of each history) for validation")
    test: float = Field(0.1, gt=0, lt=1, description="share of users (weak: of each history) for the test")
    fold_in: float = Field(0.8, gt=0, lt=1, description="share of a held-out user's history that is shown to the model")
    cold_items: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the items that are removed from training; test users must find them by their features",
    )

    def covered(self) -> dict[str, Any]:
        """Return what the protocol hash covers; newer options are left out if they have their defaults."""
        more = {"shown_at_test": "training and validation"} if self.kind == "weak" else {}
        return self.model_dump(mode="json", exclude=None if self.cold_items else {"cold_items"}) | more


class SignalChoice(BaseModel, frozen=True, extra="forbid"):
    """Which signals are used."""

    signals: str = Field(
        "binary",
        description="signals to use: binary (none), auto (the ratings and timestamps of the data), or some of graded "
        "(ratings and counts; low ratings are dislikes), timed (timestamps) and features (of items and users), "
        "separated by commas",
    )
