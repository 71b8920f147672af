"""What a user may choose about the data (source, preparation, split), as records that every protocol card holds."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Source(BaseModel):
    """A data set: its name in the catalog, or a file with the columns to take."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str = Field("ml-latest-small", description="a name of the catalog, or a CSV, TSV, Parquet or JSON lines file")
    user: str | None = Field(None, description="column of the user ids; guessed where not given")
    item: str | None = Field(None, description="column of the item ids; guessed where not given")
    rating: str | None = Field(None, description="column of the ratings; guessed where not given; none: leave them out")
    time: str | None = Field(None, description="column of the times; guessed where not given; none: leave them out")
    separator: str | None = Field(None, description="separator of a text file; guessed where not given")
    items: str | None = Field(None, description="a second file with titles, genres and other columns of the items")
    max_bad_share: float = Field(0.05, ge=0, le=1, description="largest share of unusable rows that is accepted")

    def moved_to(self, data: str) -> "Source":
        """Return the source of the same data elsewhere: a file keeps its columns, a catalog name has none to keep."""
        return self.model_copy(update={"data": data}) if Path(data).exists() else Source(data=data)

    def absolute(self) -> "Source":
        """Return the same file with absolute paths, so that it can be read from any folder."""
        items = None if self.items is None else str(Path(self.items).absolute())
        return self.model_copy(update={"data": str(Path(self.data).absolute()), "items": items})


class Preparation(BaseModel):
    """The choices of a preparation; the defaults are the paper's."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    min_rating: float | Literal["auto"] | None = Field(
        "auto", description="keep ratings at or above this; auto is 4 for star ratings, none elsewhere"
    )
    min_items_per_user: int = Field(5, ge=0, description="drop users with fewer items")
    min_users_per_item: int = Field(5, ge=0, description="drop items with fewer users, counted after the users' step")
    k_core: bool = Field(False, description="repeat both filters until nothing changes (the paper filters once)")
    even_items: bool = Field(False, description="drop the least popular item where the number of items is odd")


class SplitPlan(BaseModel):
    """The choices of a split; the defaults are the paper's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["strong", "weak", "temporal"] = Field(
        "strong",
        description="strong: held-out users; weak: held-out items of every user; "
        "temporal: held-out users, the last part of whose history is predicted",
    )
    valid: float = Field(0.1, gt=0, lt=1, description="share of users (weak: of each history) for validation")
    test: float = Field(0.1, gt=0, lt=1, description="share of users (weak: of each history) for the test")
    fold_in: float = Field(0.8, gt=0, lt=1, description="share of a held-out user's history that the model is shown")
