"""The response bodies of the HTTP routes, for the OpenAPI document; answers are not validated at run time."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from recfusion.inference.explanations import Basis

Json = str | int | float | bool | None


class Body(BaseModel):
    """A response without undeclared fields."""

    model_config = ConfigDict(extra="forbid")


class Error(Body):
    """Why a request failed."""

    error: str = Field(description="what was expected, what was received and what to do")
    field: str = Field(description="the field, header or part of the request that is wrong; empty if there is none")


class Item(Body):
    """An item of the model."""

    item: str
    name: str
    columns: dict[str, Json] = Field(description="the other columns of the item table")


class RankedItem(Item):
    """An item of a list."""

    rank: int
    score: float


class ReasonBody(Body):
    """One reason for an item."""

    items: list[str] = Field(description="items of the history")
    text: str
    weight: float


class RecommendedItem(RankedItem):
    """An item of a user's list with its reasons."""

    because: list[ReasonBody]
    reasons: str | None = Field(description="how the reasons were computed; null without `why`")


class ListBody(Body):
    """One user's list."""

    model: str
    version: str
    basis: Basis
    unknown: list[str] = Field(description="ids of the history that the model does not know")
    items: list[RecommendedItem]
    recommendation_id: str = Field(description="events that follow from this list name it")


class ListBatch(Body):
    """Lists in the order of the requests."""

    answers: list[ListBody]


class SimilarItems(Body):
    """The most similar items; the score is the similarity."""

    model: str
    items: list[RankedItem]


class ItemSet(Body):
    """One completion of a basket."""

    items: list[RankedItem]


class Completions(Body):
    """Alternative completions of a basket."""

    model: str
    unknown: list[str]
    alternatives: list[ItemSet]


class StepItemBody(Body):
    """An item in the state of a step."""

    item: str
    name: str
    known: bool = Field(description="the thinning left it")
    in_history: bool
    score: float | None


class StepBody(Body):
    """The state at one step of the reverse process."""

    share: float
    items: list[StepItemBody]


class ReverseSteps(Body):
    """The reverse process on a history."""

    model: str
    steps: list[StepBody]


class Items(Body):
    """Items of the main model."""

    items: list[Item]


class ModelName(Body):
    """A loaded model."""

    name: str
    version: str


class TrainingData(Body):
    """The data of a model."""

    data: str
    users: int
    items: int
    interactions: int
    all_users: bool
    preparation: list[str]


class MetricBody(Body):
    """One metric of a model."""

    metric: str
    mean: float
    ci95: list[float] | None = None
    users: int = 0
    judged_on: str
    words: str


class ModelBody(Body):
    """One served model."""

    name: str
    model: str
    title: str
    version: str
    age_seconds: int
    trained_on: TrainingData
    holds_histories: bool
    fit_seconds: float
    metrics: list[MetricBody]
    licence: str


class ColumnBody(Body):
    """A column of the item table that lists can be filtered by."""

    name: str
    kind: Literal["number", "boolean", "categories", "text"]
    values: list[Json]
    min: Json
    max: Json


class Control(Body):
    """A re-ranking control."""

    name: str
    kind: Literal["weight", "weights", "shares"]
    title: str | None = Field(description="of its slider on the page; null without a slider")
    low: str | None
    high: str | None
    help: str
    min: float
    max: float
    default: float | dict[str, Any]


class ModelInfo(Body):
    """The models, the columns to filter by and the re-ranking controls."""

    models: list[ModelBody]
    share: float = Field(description="of the users who get the second model")
    items: int
    columns: list[ColumnBody]
    controls: list[Control]


class Recorded(Body):
    """The number of recorded events."""

    recorded: int


class Deleted(Body):
    """The number of deleted events."""

    deleted: int


class ChangedItems(Body):
    """What became of changed items."""

    changed: int
    added: list[str]
    unknown: list[str]
    note: str | None


class Processes(Body):
    """How many processes have loaded the new models."""

    loaded: int
    of: int


class Reloaded(Body):
    """The models after a reload."""

    models: list[ModelName]
    processes: Processes


class Live(Body):
    """The process runs."""

    live: bool


class Ready(Body):
    """The loaded models, and why the last reload failed."""

    ready: bool
    models: list[ModelName]
    trouble: str | None
