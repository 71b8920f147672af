"""The data options (source, preparation, split, signals), declared once; protocol cards and the CLI use them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

PUBLISHED = "published"  # as a file of users: the one that is published with a named data set


class Source(BaseModel, frozen=True, extra="forbid"):
    """A data set: its name in the catalog, or a file with the columns to take."""

    data: str = Field("ml-latest-small", description="a name of the catalog, or a CSV, TSV, Parquet or JSON lines file")
    user: str | None = Field(None, description="column of the user ids; guessed by default")
    item: str | None = Field(None, description="column of the item ids; guessed by default")
    rating: str | None = Field(None, description="column of the ratings; guessed by default; none: ignore ratings")
    time: str | None = Field(None, description="column of the timestamps; guessed by default; none: ignore them")
    separator: str | None = Field(None, description="separator of a text file; guessed by default")
    items: str | None = Field(None, description="a file about the items: titles, genres and other columns")
    users_file: str | None = Field(
        None, description=f"a file about the users, for user features; {PUBLISHED}: the one of ml-100k or ml-1m"
    )
    feature_columns: str | None = Field(
        None, description="columns that become item features, separated by commas; all usable ones by default"
    )
    max_bad_share: float = Field(0.05, ge=0, le=1, description="largest accepted share of unusable rows")

    def moved_to(self, data: str) -> "Source":
        """Return the source of the same data elsewhere, without its item file; a file keeps its column options."""
        return (
            self.model_copy(update={"data": data, "items": None})
            if Path(data).exists()
            else Source(data=data, users_file=self.users_file)
        )

    def absolute(self) -> "Source":
        """Return the source with absolute paths."""
        return self._with_paths(lambda path: str(Path(path).absolute()))

    def shown(self) -> "Source":
        """Return the source as cards show it: paths relative to the working folder, or the file name alone."""
        return self._with_paths(_shown_path)

    def _with_paths(self, change: Callable[[str], str]) -> "Source":
        paths = {"items": self.items, "users_file": None if self.users_file == PUBLISHED else self.users_file}
        more = {name: change(path) for name, path in paths.items() if path is not None}
        return self.model_copy(update={"data": change(self.data)} | more)


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

    kind: Literal["strong", "weak", "temporal", "global"] = Field(
        "strong",
        description="strong: held-out users; weak: held-out items of every user; temporal: held-out users, predict the "
        "last part of their histories; global: all users, train before one moment and test after it",
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
        return self.model_dump(mode="json", exclude=None if self.cold_items else {"cold_items"})


class SignalChoice(BaseModel, frozen=True, extra="forbid"):
    """Which signals are used."""

    signals: str = Field(
        "binary",
        description="signals to use: binary (none), or some of graded (ratings and counts; low ratings are dislikes), "
        "timed (timestamps) and features (of items and users), separated by commas",
    )
