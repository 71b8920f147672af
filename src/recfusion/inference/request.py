"""The request for one list: filters, re-ranking weights, history, length and explanations.

Each field is declared once, here, with its type, bounds, default and help text. The command-line options, the HTTP
schemas, the OpenAPI document, the controls in `/model` and on the page, and the tables in docs/how-to/control.md are
generated from these records. A new re-ranking control needs a field in `Reranking` and a function in `reranking.TERMS`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    GetPydanticSchema,
    StringConstraints,
    TypeAdapter,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import core_schema

from recfusion.core.errors import InputError, validating
from recfusion.data.conditions import LONGEST_CONDITION
from recfusion.data.reading.ids import id_text

_MOST = 1_000_000  # ids in a list, items in a list
_LONGEST_ID = 1000  # characters
_ID_PATTERN = r"^[^\u0000\r\n\ufffd]*[^\s\u0000\r\n\ufffd][^\u0000\r\n\ufffd]*$"
_ID_TEXT = {"type": "string", "minLength": 1, "maxLength": _LONGEST_ID, "pattern": _ID_PATTERN}
_ID_SCHEMA = {"anyOf": [_ID_TEXT, {"type": "integer"}]}


@contextmanager
def errors_about(field: str) -> Iterator[None]:
    """Set the field of an InputError that the block raises."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error), field) from None


def _plain(value: Any) -> Any:
    """Return a numpy scalar as a Python number."""
    return value.item() if isinstance(value, np.generic) else value


def _as_id(value: Any) -> Any:
    """Return the one text of an id; other values than texts and whole numbers must fail."""
    value = _plain(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    found = id_text(value) if is_number or isinstance(value, str) else value
    if found is None and value is not None:
        raise ValueError("expected a whole number (as a float: below 2^53) or a text on one line")
    return found


def _id_list(value: Any) -> Any:
    """Return an array, series, set or other iterable as a list without missing values."""
    if isinstance(value, list | tuple | str | bytes | Mapping) or not isinstance(value, Iterable):
        return value
    return _present(value)


def _present(values: Iterable[Any]) -> list[Any]:
    """Return the values that are not missing, numpy scalars as Python numbers."""
    plain = (_plain(value) for value in values)
    return [value for value in plain if value is not None and not (isinstance(value, float) and math.isnan(value))]


Id = Annotated[
    str,
    StringConstraints(min_length=1, max_length=_LONGEST_ID),
    BeforeValidator(_as_id),
    WithJsonSchema(_ID_SCHEMA),
]
Ids = Annotated[tuple[Id, ...], BeforeValidator(_id_list), Field(max_length=_MOST)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=_LONGEST_ID)]
Count = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Share = Annotated[Number, Field(ge=0, le=1)]
Weight = Annotated[Number, Field(ge=-1, le=1)]
Place = Annotated[
    str, BeforeValidator(lambda place: str(_plain(place))), StringConstraints(pattern=r"^[1-9][0-9]{0,5}$")
]
Weights = dict[Name, Annotated[dict[Name, Weight], Field(max_length=100)]]
Again = Literal["never", "allowed", "only"]
Shares = dict[Name, Annotated[dict[Name, Share], Field(max_length=100)]]


class Record(BaseModel, extra="forbid", frozen=True):
    """A frozen record that refuses unknown fields; a wrong value raises an InputError about its field."""

    def __init__(self, **values: Any) -> None:
        with validating(f"valid {type(self).__name__}", show=True):
            super().__init__(**values)

    # pydantic must not call this method for records within records: it would lose the field of an error.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


class ItemFilters(Record):
    """Which items may be in a list."""

    where: Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_CONDITION)] | None = Field(
        None, description="condition on the columns of the item table: \"stock > 0 and category == 'Tea'\""
    )
    allow: Ids | None = Field(None, description="restrict the list to these ids")
    deny: Ids = Field((), description="leave out these ids")


class Filters(ItemFilters):
    """Which items may be in a user's list.

    A list with `at_most` takes the items in the order of their scores and skips an item if one of its values has been
    used that many times. Of several entries in `again_by` for an item, the last one counts.
    """

    again: Again = Field(
        "never", description="whether bought items are recommended again: never, allowed beside new ones, or only these"
    )
    again_by: Annotated[dict[Name, Annotated[dict[Name, Again], Field(max_length=100)]], Field(max_length=20)] = Field(
        default_factory=dict,
        description="again for the items with a value in a column: category:Coffee=allowed,Tea=only",
    )
    at_most: Annotated[
        dict[Name, Annotated[Count, Field(ge=1, le=_MOST), BeforeValidator(_plain)]], Field(max_length=20)
    ] = Field(default_factory=dict, description="largest number of items with the same value in a column")


class Reranking(Record):
    """Re-ranking weights; the defaults leave the list unchanged, bit for bit.

    `adventurousness` (0 to 1): the history is taken to show a share a = 1 - .8 v of the user's taste, as if thinning
    had removed the rest. The n (1 - a) / a most likely missing items are added to the history of n items, and the list
    is predicted from both. Relevance is multiplied by (n_j + mean n)^-v: what everybody knows is no surprise.
    `popularity` (-1 to 1): relevance is multiplied by (n_j + mean n)^(1.5 v), n_j being the item's number of users.
    `wish` ({"genres": {"Drama": 1, "Horror": -.5}}, each -1 to 1): guidance; relevance is multiplied by
    (p(g | j) / p(g))^(.3 w) for each value g. Relevance is how far a score lies above the user's median; lists then
    show its logarithm with these terms added.
    `shares` ({"genres": {"Drama": .6, "Comedy": .3}}): target shares of values in the list; the list is chosen greedily
    for scores and closeness to them (calibrated recommendations, Steck 2018), weighted by `calibration`.
    `diversity` (0 to 1): maximal marginal relevance (Carbonell and Goldstein 1998) with the model's own similarity of
    items: an item close to one that is already in the list is moved down.
    `boost` ({"margin": .3}, each -1 to 1): relevance is multiplied by 10^(v (q_j - 1/2)), q_j being the share of items
    with a smaller value in the column (half of those with an equal one); an item without a value has q_j = 1/2.
    `new_boost` (0 to 1): relevance is multiplied by 10^(v 2^(-a_j / d)), a_j being the age of the item in days by the
    dates of `new_column`, counted back from the latest date that is not in the future, and d = `new_days`.
    `new_share` (0 to 1): the first n places have at least n v items younger than `new_days`, rounded down, while
    there are such items. `pins` ({"1": "i07"}): these items are at these places if the filters allow them.
    """

    adventurousness: Share = Field(
        0.0,
        title="Adventure",
        description="skip the most predictable and the best-known items",
        json_schema_extra={"low": "the obvious", "high": "less obvious items"},
    )
    popularity: Weight = Field(
        0.0,
        title="Fame",
        description="prefer little-known (below 0) or well-known items (above 0)",
        json_schema_extra={"low": "hidden gems", "high": "big names"},
    )
    diversity: Share = Field(
        0.0,
        title="Variety",
        description="avoid similar items within a list",
        json_schema_extra={"low": "similar items", "high": "different items"},
    )
    calibration: Share = Field(0.9, description="weight of the target shares against the scores")
    wish: Annotated[Weights, Field(max_length=20)] = Field(
        default_factory=dict,
        description="prefer (above 0) or avoid (below 0) values of a column: genres:Drama=1,Horror=-.5",
        json_schema_extra={"kind": "weights"},
    )
    shares: Annotated[Shares, Field(max_length=1)] = Field(
        default_factory=dict,
        description="target shares of the values of one column: genres:Drama=.6,Comedy=.3",
        json_schema_extra={"kind": "shares"},
    )
    boost: Annotated[dict[Name, Weight], Field(max_length=20)] = Field(
        default_factory=dict,
        description="prefer high (above 0) or low values (below 0) of a column of numbers or dates: margin=.3",
        json_schema_extra={"kind": "columns"},
    )
    new_column: Name | None = Field(
        None, description="column with the date since when an item is there", json_schema_extra={"kind": "column"}
    )
    new_days: Annotated[Number, Field(gt=0, le=3650)] = Field(
        30.0, description="age in days up to which an item is new, and in which its boost halves"
    )
    new_boost: Share = Field(0.0, description="prefer new items")
    new_share: Share = Field(0.0, description="least share of new items in a list")
    pins: Annotated[dict[Place, Id], Field(max_length=100)] = Field(
        default_factory=dict,
        description="items at fixed places, if the filters allow them: 1=i07",
        json_schema_extra={"kind": "places"},
    )

    @property
    def is_greedy(self) -> bool:
        """Whether a list is selected item by item."""
        return bool(self.diversity or self.shares or self.pins or self.new_share)

    @field_validator("pins")
    @classmethod
    def _check_pins(cls, pins: dict[str, str]) -> dict[str, str]:
        if len(set(pins.values())) < len(pins):
            raise ValueError("expected each item at one place only")
        return pins

    @model_validator(mode="after")
    def _check_column(self) -> "Reranking":
        if self.new_column is None and (self.new_boost or self.new_share):
            raise ValueError("expected new_column, a column of dates, with new_boost and new_share")
        return self

    @field_validator("shares")
    @classmethod
    def _check_sum(cls, shares: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        for column, wanted in shares.items():
            if not 0 < sum(wanted.values()) <= 1 + 1e-6:
                raise ValueError(f"expected shares of {column} that add up to at most 1, got {sum(wanted.values()):g}")
        return shares


_NO_RERANKING = Reranking()


class HistoryEntry(Record):
    """An item of a history with its rating and time, for a model that reads them."""

    item: Id = Field(description="id of the item")
    rating: Annotated[Number, Field(ge=-1e15, le=1e15)] | None = Field(
        None, description="rating or count; liked if absent"
    )
    time: Annotated[Number, Field(ge=-9e18, le=9e18)] | None = Field(None, description="seconds since 1970")


def _as_entry(value: Any) -> Any:
    """Return an id as an entry without a rating and a time."""
    if isinstance(value, Mapping | HistoryEntry):
        return dict(value) if isinstance(value, Mapping) else value
    value = _as_id(value)
    if not isinstance(value, str) or not 1 <= len(value) <= _LONGEST_ID:
        raise ValueError(f"expected an id of 1 to {_LONGEST_ID} characters, or an object with item, rating and time")
    return {"item": value}


def _keep_plain_ids(values: Any, validate: Callable[[Any], Any]) -> Any:
    """Return the ids of a list of texts as texts, which is 20 times as fast as making an entry of each."""
    if not isinstance(values, list | tuple) or len(values) > _MOST:
        return validate(values)
    if all(type(value) is str and 0 < len(value) <= _LONGEST_ID and value.isprintable() for value in values):
        return tuple(value if "." not in value and value.strip() == value else _as_id(value) for value in values)
    return validate(values)


_Entry = Annotated[
    HistoryEntry,
    BeforeValidator(_as_entry),
    WithJsonSchema({"anyOf": [*_ID_SCHEMA["anyOf"], HistoryEntry.model_json_schema()]}),
]
_Entries = Annotated[tuple[_Entry, ...], Field(max_length=_MOST)]
Entry = str | HistoryEntry  # an id without a rating and a time may stay a text
History = Annotated[
    tuple[Entry, ...],
    GetPydanticSchema(
        lambda _, make: core_schema.no_info_wrap_validator_function(_keep_plain_ids, make.generate_schema(_Entries))
    ),
]
_HISTORY: TypeAdapter[tuple[Entry, ...]] = TypeAdapter(History)


def _as_name(value: Any) -> Any:
    """Return a number as the text of an id, since 1.5 may be the name of an item."""
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    found = id_text(value) if whole and not isinstance(value, bool) else value
    return str(found) if isinstance(found, float) else value if found is None else found


def parse_history(values: Any) -> tuple[Entry, ...]:
    """Return ids and entries (as mappings), in any iterable but a text, as a validated history without missing values.

    Ids are texts, numbers, or whole floats, which pandas makes of columns with gaps.
    """
    if isinstance(values, Iterable) and not isinstance(values, str | bytes):
        values = [_as_name(value) for value in _present(values)]
    with errors_about("history"), validating("a list of items, each an id or {item, rating, time}", show=True):
        return _HISTORY.validate_python(values)


class ListRequest(Filters):
    """The canonical request for one list."""

    history: History | None = Field(
        None, description="ids, or ids with ratings and times; oldest first if there are no times"
    )
    k: Annotated[Count, Field(ge=1, le=_MOST)] = Field(10, description="length of the list")
    reranking: Reranking = Field(default_factory=lambda: _NO_RERANKING, description="re-ranking weights")
    why: Annotated[Count, Field(ge=0, le=100)] = Field(0, description="largest number of reasons for each item")


def describe_controls() -> list[dict[str, Any]]:
    """Return name, kind, title, words, help, bounds and default of each re-ranking control, as `/model` has them.

    `title`, `low` and `high` are None for a control that has no slider on the page.
    """
    controls = []
    for name, schema in Reranking.model_json_schema()["properties"].items():
        field, number = Reranking.model_fields[name], schema
        while isinstance(number.get("additionalProperties"), dict):
            number = number["additionalProperties"]
        controls.append(
            {
                "name": name,
                "kind": schema.get("kind", "weight"),
                "title": field.title,
                "low": schema.get("low"),
                "high": schema.get("high"),
                "help": field.description,
                "min": number.get("minimum", number.get("exclusiveMinimum")),
                "max": number.get("maximum"),
                "default": field.get_default(call_default_factory=True),
            }
        )
    return controls
