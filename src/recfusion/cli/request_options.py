"""Options that rule and lean lists, shared by the commands that make them."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import polars as pl
from rich.table import Column, Table
from typer import Option

from recfusion.cli.options import parse_settings
from recfusion.cli.output import literal, note, out
from recfusion.core.errors import InputError
from recfusion.core.files import check_regular
from recfusion.inference.filters import Rules
from recfusion.inference.reranking import Knobs

_RULES, _KNOBS = "Rules", "Knobs"

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "where": (
        Annotated[str | None, Option(help='Condition on item columns: "stock > 0".', rich_help_panel=_RULES)],
        None,
    ),
    "allow": (
        Annotated[
            str | None, Option(help="The only ids that may come: a file of them, or ID,ID.", rich_help_panel=_RULES)
        ],
        None,
    ),
    "deny": (
        Annotated[str | None, Option(help="Ids that may not come: a file of them, or ID,ID.", rich_help_panel=_RULES)],
        None,
    ),
    "include_seen": (
        Annotated[bool, Option("--include-seen", help="Recommend what they have, too.", rich_help_panel=_RULES)],
        False,
    ),
    "at_most": (
        Annotated[
            list[str] | None,
            Option(metavar="COLUMN=N", help="Items of any one value of a column.", rich_help_panel=_RULES),
        ],
        None,
    ),
    "adventurousness": (
        Annotated[float, Option(help="0 to 1: how much is taken for granted.", rich_help_panel=_KNOBS)],
        0.0,
    ),
    "popularity": (
        Annotated[float, Option(help="-1 to 1: less or more of the well-known.", rich_help_panel=_KNOBS)],
        0.0,
    ),
    "wish": (
        Annotated[
            list[str] | None,
            Option(metavar="COLUMN:VALUE=WEIGHT", help="-1 to 1: genres:Drama=1,Horror=-.5.", rich_help_panel=_KNOBS),
        ],
        None,
    ),
    "share": (
        Annotated[
            list[str] | None,
            Option(
                metavar="COLUMN:VALUE=SHARE", help="Target shares: genres:Drama=.6,Comedy=.3.", rich_help_panel=_KNOBS
            ),
        ],
        None,
    ),
    "diversity": (
        Annotated[float, Option(help="0 to 1: less alike within a list.", rich_help_panel=_KNOBS)],
        0.0,
    ),
}
RULES = ("where", "allow", "deny", "include_seen", "at_most")
KNOBS = ("adventurousness", "popularity", "wish", "share", "diversity")


def control_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` the options of its parameters `rules: Rules` and, where it has one, `knobs: Knobs`."""
    parameters = inspect.signature(command).parameters
    own = {name: p for name, p in parameters.items() if name not in ("rules", "knobs")}
    made = (RULES if "rules" in parameters else ()) + (KNOBS if "knobs" in parameters else ())
    kind = inspect.Parameter.KEYWORD_ONLY
    more = [inspect.Parameter(name, kind, default=_OPTIONS[name][1], annotation=_OPTIONS[name][0]) for name in made]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        given = {name: values.pop(name) for name in made}
        values["rules"] = _rules(given)
        if "knobs" in parameters:
            values["knobs"] = _knobs(given)
        command(**values)

    signature = [p.replace(kind=kind) for p in own.values()] + more
    run.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in signature}
    return run


def _rules(given: dict[str, Any]) -> Rules:
    at_most = {}
    for column, most in parse_settings(given["at_most"], "--at-most COLUMN=N").items():
        if not most.isdecimal():
            raise InputError(f"Expected --at-most COLUMN=N with a whole number, got '{column}={most}'.")
        at_most[column] = int(most)
    allow = None if given["allow"] is None else _ids(given["allow"])
    deny = [] if given["deny"] is None else _ids(given["deny"])
    return Rules(given["where"], allow, deny, given["include_seen"], at_most)


def _knobs(given: dict[str, Any]) -> Knobs:
    wish, shares = _weights(given["wish"], "--wish"), _weights(given["share"], "--share")
    return Knobs(given["adventurousness"], given["popularity"], wish, shares, diversity=given["diversity"])


def _ids(text: str) -> list[str]:
    """Return the ids of a file, one a line, or those of a text, separated by commas."""
    path = Path(text)
    if _is_there(path):
        check_regular(path)
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"Expected a text file of ids, one a line, at '{path}': {error}.") from None
        return [line.strip() for line in lines if line.strip()]
    return [part.strip() for part in text.split(",") if part.strip()]


def _is_there(path: Path) -> bool:
    """Return whether a text names a file or pipe, as `<(...)` of a shell does; the name of a folder may be an id."""
    try:
        return path.exists() and not path.is_dir()
    except OSError:  # longer than any name
        return False


def _weights(pairs: list[str] | None, option: str) -> dict[str, dict[str, float]]:
    """Return {column: {value: weight}} of options such as genres:Drama=1,Horror=-.5."""
    found: dict[str, dict[str, float]] = {}
    for pair in pairs or []:
        column, separator, rest = pair.partition(":")
        for part in rest.split(","):
            value, equals, weight = part.rpartition("=")
            try:
                if not separator or not equals or not column.strip() or not value.strip():
                    raise ValueError
                found.setdefault(column.strip(), {})[value.strip()] = float(weight)
            except ValueError:
                raise InputError(f"Expected {option} COLUMN:VALUE=NUMBER,VALUE=NUMBER, got '{pair}'.") from None
    return found


def print_items(found: pl.DataFrame, title: str) -> None:
    """Print a list of items as a table; reasons as their texts."""
    if "because" in found.columns:
        found = found.with_columns(because_texts(found))
    heads = (
        Column(literal(name), justify="right" if kind.is_numeric() else "left") for name, kind in found.schema.items()
    )
    table = Table(*heads, title=literal(title), title_justify="left")
    for row in found.iter_rows():
        cells = ("" if cell is None else f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row)
        table.add_row(*map(literal, cells))
    out().print(table)


def because_texts(found: pl.DataFrame) -> pl.Series:
    """Return the reasons of a list as one text for each item."""
    return found["because"].list.eval(pl.element().struct.field("text")).list.join("; ").alias("because")


def note_unknown_rules(unknown: int) -> None:
    """Say how many ids in the rules no item has."""
    if unknown:
        note(f"Not known to the model: {unknown} of the ids in --allow and --deny")
