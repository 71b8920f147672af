"""What a user may choose about the data (source, preparation, split), as records that every protocol card holds."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

PUBLISHED = "published"  # as a file of users: what a named data set itself says of them


class Source(BaseModel, frozen=True, extra="forbid"):
    """A data set: its name in the catalog, or a file with the columns to take."""

    data: str = Field("ml-latest-small", description="a name of the catalog, or a CSV, TSV, Parquet or JSON lines file")
    user: str | None = Field(None, description="column of the user ids; guessed where not given")
    item: str | None = Field(None, description="column of the item ids; guessed where not given")
    rating: str | None = Field(None, description="column of the ratings; guessed where not given; none: leave them out")
    time: str | None = Field(None, description="column of the times; guessed where not given; none: leave them out")
    separator: str | None = Field(None, description="separator of a text file; guessed where not given")
    items: str | None = Field(None, description="a second file with titles, genres and other columns of the items")
    users_file: str | None = Field(
        None,
        description="a file with what is known of the users, for their features; "
        f"{PUBLISHED}: what ml-100k and ml-1m say of theirs",
    )
    feature_columns: str | None = Field(
        None, description="columns of the items that features are made of, with commas; all usable ones where not given"
    )
    max_bad_share: float = Field(0.05, ge=0, le=1, description="largest share of unusable rows that is accepted")

    def moved_to(self, data: str) -> "Source":
        """Return the source of the same data elsewhere: a file keeps its columns, a catalog name has none to keep.

        What described the items is left behind: it plays no part in the data's identity. A file of users is not, since
        features of users are made of it.
        """
        return (
            self.model_copy(update={"data": data, "items": None})
            if Path(data).exists()
            else Source(data=data, users_file=self.users_file)
        )

    def absolute(self) -> "Source":
        """Return the same files with absolute paths, so that they can be read from any folder."""
        return self._with_paths(lambda path: str(Path(path).absolute()))

    def shown(self) -> "Source":
        """Return the same files as cards name them: by their path in the working folder, elsewhere by name alone."""
        return self._with_paths(_shown_path)

    def _with_paths(self, change: Callable[[str], str]) -> "Source":
        paths = {"items": self.items, "users_file": None if self.users_file == PUBLISHED else self.users_file}
        more = {name: change(path) for name, path in paths.items() if path is not None}
        return self.model_copy(update={"data": change(self.data)} | more)


def _shown_path(path: str) -> str:
    """Return a path without what it says of the machine."""
    whole, here = Path(os.path.normpath(Path(path).absolute())), Path.cwd()
    return whole.relative_to(here).as_posix() if whole.is_relative_to(here) else whole.name


class Preparation(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """The choices of a preparation; the defaults are the paper's."""

    min_rating: float | Literal["auto"] | None = Field(
        "auto", description="keep ratings at or above this; auto is 4 for star ratings, none elsewhere"
    )
    min_items_per_user: int = Field(5, ge=0, description="drop users with fewer items")
    min_users_per_item: int = Field(5, ge=0, description="drop items with fewer users, counted after the users' step")
    k_core: bool = Field(False, description="repeat both filters until nothing changes (the paper filters once)")
    even_items: bool = Field(False, description="drop the least popular item where the number of items is odd")


class SplitPlan(BaseModel, frozen=True, extra="forbid"):
    """The choices of a split; the defaults are the paper's."""

    kind: Literal["strong", "weak", "temporal", "global"] = Field(
        "strong",
        description="strong: held-out users; weak: held-out items of every user; "
        "temporal: held-out users, the last part of whose history is predicted; "
        "global: everybody, training before one moment and judged after it",
    )
    valid: float = Field(0.1, gt=0, lt=1, description="share of users (weak: of each history) for validation")
    test: float = Field(0.1, gt=0, lt=1, description="share of users (weak: of each history) for the test")
    fold_in: float = Field(0.8, gt=0, lt=1, description="share of a held-out user's history that the model is shown")
    cold_items: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the items that leave training entirely; test users' items among them are to be found "
        "among all items, by features alone",
    )

    def covered(self) -> dict[str, Any]:
        """Return what the hash of a protocol covers: a choice that came later is left out where it is not made."""
        return self.model_dump(mode="json", exclude=None if self.cold_items else {"cold_items"})


class SignalChoice(BaseModel, frozen=True, extra="forbid"):
    """What is used of the data beside its ones."""

    signals: str = Field(
        "binary",
        description="what is used beside who has what: binary (nothing), or some of graded (what was rated low is seen "
        "and not liked; ratings and counts), timed (the order) and features (of items and users), with commas",
    )
