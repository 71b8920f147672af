"""The request bodies of the HTTP routes; filters, re-ranking and histories are the library's own records."""

import math
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema, model_validator

from recfusion.inference.request import Count, Id, Ids, ItemFilters, ListRequest, Name, Number, Record, Share

MOST_K = 1000  # items in a list over HTTP
_LONGEST_VALUE = 2000  # characters of a text in a column


def _seconds(value: Any) -> Any:
    """Return an ISO 8601 time as seconds since 1970, in UTC if it names no time zone; other values stay."""
    if not isinstance(value, str):
        return value
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("expected seconds since 1970 or an ISO 8601 time such as 2026-05-01T12:30:00Z") from None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _column_value(value: Any) -> Any:
    """Return a value for a column; one that JSON or a database cannot store raises an error."""
    if isinstance(value, str):
        fits = len(value) <= _LONGEST_VALUE and not any("\ud800" <= sign <= "\udfff" for sign in value)
    else:
        fits = value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    if not fits:
        raise ValueError(f"expected a text of at most {_LONGEST_VALUE:,} characters, a number, true, false or null")
    return value


Value = Annotated[
    Any,
    BeforeValidator(_column_value),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "maxLength": _LONGEST_VALUE},
                *({"type": t} for t in ("number", "boolean", "null")),
            ]
        }
    ),
]
Time = Annotated[
    Number,
    Field(ge=0, le=1e11),
    BeforeValidator(_seconds),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0, "maximum": 1e11}, {"type": "string", "maxLength": 40}]}),
]
ModelName = Annotated[
    Name | None, Field(description="one of the served models; the service chooses one if it is absent")
]
PlacementName = Annotated[
    Name | None, Field(description="a placement of the service, which sets some of these fields for the request")
]


class Recommend(ListRequest):
    """A list for a history, for a known user, or for a known user with further items."""

    user: Id | None = Field(None, description="id of a user of the histories file or of the events")
    model: ModelName = None
    placement: PlacementName = None

    # A longer list would hold up the other requests.
    k: Annotated[Count, Field(ge=1, le=MOST_K)] = Field(10, description=ListRequest.model_fields["k"].description)

    remember: Annotated[bool, Field(strict=True)] = Field(
        False, description="store which items the user is shown; the three fields below do so too"
    )
    cursor: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,12}$")] | None = Field(
        None, description="that of the page before: the list continues without the items of earlier pages"
    )
    not_again_days: Annotated[Number, Field(gt=0, le=3650)] | None = Field(
        None, description="leave out items that the user was shown in these last days"
    )
    fade: Share = Field(0.0, description="move an item that was shown n times from rank r to r * (1 + fade * n)")

    @model_validator(mode="after")
    def _check_user(self) -> "Recommend":
        if self.history is None and self.user is None:
            raise ValueError("expected history or user")
        if self.is_remembered and self.user is None:
            raise ValueError("expected user with remember, cursor, not_again_days or fade")
        return self

    @property
    def is_remembered(self) -> bool:
        """Whether the items of the list are stored as shown to the user."""
        return self.remember or self.cursor is not None or self.not_again_days is not None or self.fade > 0


class Explain(Recommend):
    """An item, and the request of the list that it is or is not in."""

    item: Id


class RecommendBatch(Record):
    """Several lists at once."""

    requests: Annotated[list[Recommend], Field(min_length=1, max_length=100)]


class Similar(ItemFilters):
    """The most similar items to an item."""

    item: Id
    k: Annotated[Count, Field(ge=1, le=MOST_K)] = 10
    model: ModelName = None
    placement: PlacementName = None


class Popular(ItemFilters):
    """The most popular items; `allow` and `deny` may be repeated."""

    k: Annotated[int, Field(ge=1, le=MOST_K)] = 10
    model: ModelName = None


class Complete(ItemFilters):
    """Items that complete a basket together."""

    history: Ids
    n: Annotated[Count, Field(ge=1, le=50)] = 5
    alternatives: Annotated[Count, Field(ge=1, le=10)] = 1
    together: Share = 0.25
    model: ModelName = None
    placement: PlacementName = None


class Steps(Record):
    """The reverse process on a history."""

    history: Ids
    steps: Annotated[Count, Field(ge=1, le=50)] = 10
    seed: Annotated[Count, Field(ge=0, le=2**31 - 1)] = 0
    model: ModelName = None


class EventBody(Record):
    """What a user did with an item.

    Each kind has a weight. At a sum of 1 the item joins the user's history (`have`, `purchase` and `like` at once), at
    -1 it leaves it (`return` and `dislike` at once). Kinds with weight 0, such as `click`, are only counted.
    """

    user: Id
    item: Id
    kind: Annotated[str, StringConstraints(min_length=1, max_length=40)] = "have"
    time: Time | None = Field(None, description="seconds since 1970 or an ISO 8601 time; now if absent")
    recommendation_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] | None = None
    quantity: Annotated[Number, Field(gt=0, le=1e9)] | None = Field(
        None, description="number of units; if absent, one, or all for a return"
    )
    price: Annotated[Number, Field(ge=0, le=1e12)] | None = Field(None, description="price of one unit")
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = Field(
        None, description="the event is stored once, however often it is sent with this key"
    )


class EventBatch(Record):
    """Several events, recorded together or not at all."""

    events: Annotated[list[EventBody], Field(min_length=1, max_length=1000)]


class Forget(Record):
    """The user to forget: all events of the user are deleted."""

    user: Id


class ItemChange(Record):
    """New values of some columns of an item."""

    item: Id
    columns: Annotated[dict[Name, Value], Field(min_length=1, max_length=100)]


class ItemChanges(Record):
    """Changed item columns, recorded together or not at all."""

    items: Annotated[list[ItemChange], Field(min_length=1, max_length=5000)]


class ClearItems(Record):
    """Changed values to clear: those of some items or columns, or all of them."""

    item: Annotated[tuple[Id, ...], Field(max_length=1000)] = ()
    column: Annotated[tuple[Name, ...], Field(max_length=100)] = ()
