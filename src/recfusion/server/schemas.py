"""What a request may hold: every field has a type and a bound, and what nobody knows is refused."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema, model_validator

MOST_IDS = 5000  # of a history or rule
MOST_K = 1000
_LONGEST = 200  # characters of an id
_ID_SCHEMA = {"anyOf": [{"type": "string", "minLength": 1, "maxLength": _LONGEST}, {"type": "integer"}]}


def _as_text(value: Any) -> Any:
    """Take whole numbers for ids, as they stand in many tables; anything else must be a text."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Id = Annotated[
    str, StringConstraints(min_length=1, max_length=_LONGEST), BeforeValidator(_as_text), WithJsonSchema(_ID_SCHEMA)
]
Ids = Annotated[list[Id], Field(max_length=MOST_IDS)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Weights = Annotated[
    dict[Name, Annotated[dict[Name, Annotated[Number, Field(ge=-1, le=1)]], Field(max_length=100)]],
    Field(max_length=20),
]
Shares = Annotated[
    dict[Name, Annotated[dict[Name, Annotated[Number, Field(ge=0, le=1)]], Field(max_length=100)]],
    Field(max_length=1),
]
Count = Annotated[int, Field(strict=True)]
Value = Annotated[str, StringConstraints(max_length=2000)] | bool | Annotated[int, Field(strict=True)] | Number | None


class Body(BaseModel):
    """A body that holds nothing but what is declared."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Knobs(Body):
    """How the list leans; at rest it is the plain one."""

    adventurousness: Annotated[Number, Field(ge=0, le=1)] = 0.0
    popularity: Annotated[Number, Field(ge=-1, le=1)] = 0.0
    wish: Weights = Field(default_factory=dict)
    shares: Shares = Field(default_factory=dict)
    calibration: Annotated[Number, Field(ge=0, le=1)] = 0.9
    diversity: Annotated[Number, Field(ge=0, le=1)] = 0.0


class Ruled(Body):
    """What lists may hold, and which model makes them."""

    where: Annotated[str, StringConstraints(min_length=1, max_length=2000)] | None = None
    allow: Ids | None = None
    deny: Ids = Field(default_factory=list)
    model: Name | None = Field(None, description="one of the served models; otherwise the service chooses")


class Had(Body):
    """An item of a history, with what else is known of it, for a model that reads that."""

    item: Id
    grade: Annotated[Number, Field(ge=-1e9, le=1e9)] | None = Field(
        None, description="rating or count; liked if absent"
    )
    time: Annotated[Number, Field(ge=0, le=1e11)] | None = Field(None, description="seconds since 1970")


def _as_had(value: Any) -> Any:
    """Take an id for an item of which nothing else is known."""
    if isinstance(value, dict):
        return value
    if not (isinstance(value, int) and not isinstance(value, bool)) and not (
        isinstance(value, str) and 1 <= len(value) <= _LONGEST
    ):
        raise ValueError(f"expected an id of 1 to {_LONGEST} characters, or an object with item, grade and time")
    return {"item": value}


Entry = Annotated[
    Had, BeforeValidator(_as_had), WithJsonSchema({"anyOf": [*_ID_SCHEMA["anyOf"], Had.model_json_schema()]})
]


class Recommend(Ruled):
    """A list for a history, for a known user, or for a known user with a history on top."""

    history: Annotated[list[Entry], Field(max_length=MOST_IDS)] | None = Field(
        None, description="ids, or ids with grades and times; oldest first where none has a time"
    )
    user: Id | None = None
    k: Annotated[Count, Field(ge=1, le=MOST_K)] = 10
    include_seen: Annotated[bool, Field(strict=True)] = False
    at_most: Annotated[dict[Name, Annotated[Count, Field(ge=1, le=MOST_K)]], Field(max_length=20)] = Field(
        default_factory=dict
    )
    knobs: Knobs = Field(default_factory=Knobs)
    why: Annotated[Count, Field(ge=0, le=10)] = 0

    @model_validator(mode="after")
    def _somebody(self) -> "Recommend":
        if self.history is None and self.user is None:
            raise ValueError("expected history or user")
        return self


class RecommendBatch(Body):
    """Several lists at once."""

    requests: Annotated[list[Recommend], Field(min_length=1, max_length=100)]


class Similar(Ruled):
    """Items like an item."""

    item: Id
    k: Annotated[Count, Field(ge=1, le=MOST_K)] = 10


class Complete(Ruled):
    """Items that complete a basket together."""

    history: Ids
    n: Annotated[Count, Field(ge=1, le=50)] = 5
    alternatives: Annotated[Count, Field(ge=1, le=10)] = 1
    together: Annotated[Number, Field(ge=0, le=1)] = 0.25


class Steps(Body):
    """The reverse process on a history."""

    history: Ids
    steps: Annotated[Count, Field(ge=1, le=50)] = 10
    seed: Annotated[Count, Field(ge=0, le=2**31 - 1)] = 0
    model: Name | None = None


class EventBody(Body):
    """Somebody did something with an item.

    `have` joins the user's history, `return` takes it out again, `click` is counted and changes no history.
    """

    user: Id
    item: Id
    kind: Literal["have", "click", "return"] = "have"
    time: Annotated[Number, Field(ge=0, le=1e11)] | None = Field(None, description="seconds since 1970; now if absent")
    recommendation_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] | None = None


class EventBatch(Body):
    """Several events, recorded together or not at all."""

    events: Annotated[list[EventBody], Field(min_length=1, max_length=1000)]


class Forget(Body):
    """The user of whom nothing may be kept."""

    user: Id


class ItemChange(Body):
    """New values of some columns of an item."""

    item: Id
    columns: Annotated[dict[Name, Value], Field(min_length=1, max_length=100)]


class ItemChanges(Body):
    """Changed item columns, recorded together or not at all."""

    items: Annotated[list[ItemChange], Field(min_length=1, max_length=5000)]
