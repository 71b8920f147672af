"""The request bodies of the HTTP routes; filters, re-ranking and histories are the library's own records."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from recfusion.inference.request import Count, Id, Ids, ItemFilters, ListRequest, Name, Number, Record, Share

MOST_K = 1000  # items in a list over HTTP
Value = Annotated[str, StringConstraints(max_length=2000)] | bool | Annotated[int, Field(strict=True)] | Number | None
Time = Annotated[Number, Field(ge=0, le=1e11)]
ModelName = Annotated[
    Name | None, Field(description="one of the served models; the service chooses one if it is absent")
]


class Recommend(ListRequest):
    """A list for a history, for a known user, or for a known user with further items."""

    user: Id | None = Field(None, description="id of a user of the histories file or of the events")
    model: ModelName = None

    # A longer list would hold up the other requests.
    k: Annotated[Count, Field(ge=1, le=MOST_K)] = Field(10, description=ListRequest.model_fields["k"].description)

    @model_validator(mode="after")
    def _check_user(self) -> "Recommend":
        if self.history is None and self.user is None:
            raise ValueError("expected history or user")
        return self


class RecommendBatch(Record):
    """Several lists at once."""

    requests: Annotated[list[Recommend], Field(min_length=1, max_length=100)]


class Similar(ItemFilters):
    """The most similar items to an item."""

    item: Id
    k: Annotated[Count, Field(ge=1, le=MOST_K)] = 10
    model: ModelName = None


class Complete(ItemFilters):
    """Items that complete a basket together."""

    history: Ids
    n: Annotated[Count, Field(ge=1, le=50)] = 5
    alternatives: Annotated[Count, Field(ge=1, le=10)] = 1
    together: Share = 0.25
    model: ModelName = None


class Steps(Record):
    """The reverse process on a history."""

    history: Ids
    steps: Annotated[Count, Field(ge=1, le=50)] = 10
    seed: Annotated[Count, Field(ge=0, le=2**31 - 1)] = 0
    model: ModelName = None


class EventBody(Record):
    """What a user did with an item.

    `have` adds the item to the user's history, `return` removes it, `click` is counted and changes no history.
    """

    user: Id
    item: Id
    kind: Literal["have", "click", "return"] = "have"
    time: Time | None = Field(None, description="seconds since 1970; now if absent")
    recommendation_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] | None = None


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
