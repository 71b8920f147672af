"""Parses cells into ids, ratings and times, by polars expressions."""

from collections.abc import Mapping

import polars as pl

from recfusion.data.reading.cells import with_given
from recfusion.data.reading.columns import ROLES
from recfusion.data.reading.ids import identifier
from recfusion.data.reading.text_lines import EXTRA_FIELD

KEPT = "\x00kept"  # a column that says which rows meet the condition on rows


def parse_rows(
    frame: pl.LazyFrame,
    *,
    lone_users: bool,
    untimed: bool = False,
    number: pl.Expr | None = None,
    seconds: pl.Expr | None = None,
) -> pl.LazyFrame:
    """Add "{role} given" (not empty), "{role} value" (parsed), and the flags.

    A row is good, blank, filtered (by the column KEPT), missing (a value) or unparsable. KEPT is null if cells of the
    condition are missing: the row is then filtered, or missing if it lacks other values too. `number` says how ratings
    become numbers and `seconds` how times become seconds. The stages are separate so that no text is parsed twice.
    Columns that exist already (see `IdEncoder`) are kept. With `untimed`, a row may lack its time.
    """
    given, kinds = with_given(frame)
    values: dict[str, pl.Expr] = {role: identifier(role, kinds[role]) for role in kinds if role in ("user", "item")}
    if "rating" in kinds:
        number = pl.col("rating given").cast(pl.Float32, strict=False) if number is None else number
        values["rating"] = pl.when(number.is_finite()).then(number)
    if seconds is not None:
        values["time"] = seconds
    typed = given.with_columns(value.alias(f"{role} value") for role, value in values.items())
    whole = pl.col(EXTRA_FIELD).is_null()
    roles = [role for role in ROLES if role in typed.collect_schema()]
    needed = [role for role in roles if role != "time" or not untimed]
    all_given = pl.all_horizontal(pl.col(f"{role} given").is_not_null() for role in needed)
    none_given = pl.all_horizontal(pl.col(f"{role} given").is_null() for role in roles)
    good = pl.all_horizontal(
        pl.col(f"{role} value").is_not_null() | (pl.col(f"{role} given").is_null() if role not in needed else False)
        for role in roles
    )
    kept = pl.col(KEPT) if KEPT in typed.collect_schema() else pl.lit(value=True)
    unmet = ~kept.fill_null(~all_given)  # ordinary rows without a cell of the condition do not meet it
    lone = pl.lit(lone_users) & pl.col("user value").is_not_null() & pl.col("item given").is_null()
    flags = {"blank": none_given, "missing": ~all_given & ~none_given & ~lone, "good": good | lone}
    flags = {name: flag if name == "blank" else flag & ~unmet for name, flag in flags.items()}
    flags["filtered"] = unmet & ~none_given
    flagged = typed.with_columns(**{name: flag & whole for name, flag in flags.items()})
    return flagged.with_columns(unparsable=~pl.any_horizontal(*flags))


def row_notes(facts: Mapping[str, int]) -> list[str]:
    """Return notes for the protocol card about trimmed ids and empty rows."""
    trimmed = {role: facts.get(f"{role} trimmed") for role in ("user", "item")}
    found = [f"blanks around {count:,} {role} ids were removed" for role, count in trimmed.items() if count]
    return found + [f"{facts['blank']:,} empty rows were skipped"] * bool(facts["blank"])
