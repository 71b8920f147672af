"""The response bodies of the HTTP routes, for the OpenAPI document; answers are not validated at run time."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from recfusion.inference.explanations import Basis, Reason
from recfusion.inference.reverse_steps import Step
from recfusion.inference.why_not import WhyNot
from recfusion.server.outcomes import Measure
from recfusion.server.placements import Kind

Json = str | int | float | bool | None
_GENERATION = Field(description="the loaded files: the same text means the same models and histories")


class Body(BaseModel, extra="forbid"):
    """A response without undeclared fields."""


class Error(Body):
    """Why a request failed."""

    error: str = Field(description="what was expected, what was received and what to do")
    field: str = Field(description="the field, header or part of the request that is wrong; empty if there is none")


class Item(Body):
    item: str
    name: str
    users: int = Field(description="number of training users who have the item")
    columns: dict[str, Json] = Field(description="the other columns of the item table")


class RankedItem(Item):
    rank: int
    score: float


class RecommendedItem(RankedItem):
    because: list[Reason] = Field(description="the reasons; the items are those of the history")
    other: float | None = Field(description="the rest of the model's score beside the reasons; null without `why`")
    reasons: str | None = Field(description="how the reasons were computed; null without `why`")


class UserListBody(Body):
    """One user's list."""

    model: str
    version: str
    generation: str = _GENERATION
    basis: Basis
    unknown: list[str] = Field(description="ids of the history that the model does not know")
    items: list[RecommendedItem]
    recommendation_id: str = Field(description="id for the events that follow from this list")
    cursor: str | None = Field(description="for the next page of a remembered list; null if there is none")


class Decision(Body):
    model: str
    decision: WhyNot


class ListBatch(Body):
    answers: list[UserListBody] = Field(description="lists in the order of the requests")


class RankedItems(Body):
    items: list[RankedItem]


class SimilarItems(RankedItems):
    """The most similar items; the score is the similarity."""

    model: str
    generation: str = _GENERATION


class Completions(Body):
    model: str
    generation: str = _GENERATION
    unknown: list[str]
    alternatives: list[RankedItems]


class ReverseSteps(Body):
    model: str
    generation: str = _GENERATION
    unknown: list[str] = Field(description="ids of the history that the model does not know")
    steps: list[Step]


class Items(Body):
    items: list[Item]


class Examples(Body):
    examples: list[Items]


class MapColumn(Body):
    """A column to colour the map by."""

    name: str
    values: list[str] = Field(description="the most frequent values")
    of: list[int] = Field(description="the place of each item's value among them; -1 for another one")


class ItemMap(Body):
    """Items on the map, the most popular first, as lists of equal length; similar items lie together."""

    model: str
    note: str | None = Field(description="why there is no map")
    without: int = Field(description="items without a place")
    items: list[str]
    names: list[str]
    x: list[float] = Field(description="0 to 1, from the left")
    y: list[float] = Field(description="0 to 1, from the top")
    users: list[int]
    columns: list[MapColumn]


class ModelVersion(Body):
    name: str
    version: str


class TrainingData(Body):
    data: str
    users: int
    items: int
    interactions: int
    all_users: bool
    preparation: list[str]


class MetricBody(Body):
    metric: str
    mean: float
    ci95: list[float] | None = None
    users: int = 0
    judged_on: str
    words: str


class CostPoint(Body):
    """The lists of validation users with a re-ranking slider at a position."""

    at: float
    ndcg: float = Field(description="mean NDCG@20")
    popularity: float | None = Field(description="median number of training users of the listed items")


class ModelBody(ModelVersion):
    model: str
    title: str
    age_seconds: int
    trained_on: TrainingData
    holds_histories: bool
    fit_seconds: float
    metrics: list[MetricBody]
    costs: dict[str, list[CostPoint]] = Field(description="by control; empty if they were not measured at the training")
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
    kind: Literal["weight", "weights", "shares", "columns", "column", "places"]
    title: str | None = Field(description="of its slider on the page; null without a slider")
    low: str | None
    high: str | None
    help: str
    min: float | None = Field(description="of its numbers; null if it holds texts")
    max: float | None
    default: float | dict[str, Any] | None


class ModelInfo(Body):
    models: list[ModelBody]
    share: float = Field(description="of the users who get the second model")
    items: int
    columns: list[ColumnBody]
    roles: dict[str, str] = Field(description="title, price, image and so on -> the column with this role")
    image_origins: list[str] = Field(description="origins from which the page may load images")
    controls: list[Control]


class PlacementBody(Body):
    name: str
    kind: Kind = Field(description="the route of its requests")
    sets: list[str] = Field(description="fields of a request that it sets, so that the request may not")


class Placements(Body):
    placements: list[PlacementBody]


class Recorded(Body):
    recorded: int
    repeated: int = Field(description="events that were stored before, by their idempotency keys")


class Deleted(Body):
    deleted: int
    erased: bool = Field(description="false: SQLite's log still holds the deleted rows; the service tries again")
    unlearned: bool | None = Field(
        None, description="with --learn; false: the user leaves the weights with the next update, in a moment"
    )


class Cleared(Body):
    cleared: int


class ChangedItems(Body):
    changed: int
    added: list[str]
    unknown: list[str]
    note: str | None


class Processes(Body):
    loaded: int
    of: int


class Reloaded(Body):
    models: list[ModelVersion]
    generation: str = _GENERATION
    processes: Processes


class Live(Body):
    live: bool


class Ready(Body):
    ready: bool
    models: list[ModelVersion]
    generation: str = _GENERATION
    trouble: str | None = Field(description="why the last reload failed")
    ignored_columns: list[str] = Field(description="item columns with stored values that do not fit and are ignored")


class DayLists(Body):
    day: int = Field(description="days since 1970")
    model: str
    placement: str = Field(description="empty for requests without one")
    lists: int


class DayEvents(Body):
    day: int = Field(description="days since 1970")
    kind: str
    events: int


class OutcomeBody(Body):
    """What the lists of a model or placement led to."""

    measure: Measure
    name: str
    lists: int
    total: float
    rate: float = Field(description="per list")
    ci95: list[float] = Field(description="an interval that stays valid when it is checked every day")


class Outcomes(Body):
    model: list[OutcomeBody]
    placement: list[OutcomeBody]


class HiddenItem(Item):
    events: int = Field(description="how often users skipped or disliked it")


class Catalogue(Body):
    """Which items the lists show."""

    items: int
    shown: int = Field(description="items that were in a list")
    gini: float | None = Field(description="0: all items equally often; near 1: few items in all lists; null: no lists")
    never: list[Item] = Field(description="the most popular items that were in no list")
    hidden: list[HiddenItem] = Field(description="the items that users skipped or disliked most often")


class Latency(Body):
    """The seconds to answer, as upper bounds of quantiles."""

    route: str
    requests: int
    median: float | None = Field(description="null: above the largest bound")
    p95: float | None
    p99: float | None


class Stats(Body):
    days: int
    lists: list[DayLists]
    events: list[DayEvents]
    outcomes: Outcomes
    catalogue: Catalogue
    latency: list[Latency]


class Kept(Body):
    keeps: int
    of: int


class PlacementVersion(Body):
    version: int
    time: float = Field(description="seconds since 1970")
    change: Literal["file", "edit", "undo"]
    names: list[str]


class PlacementVersions(Body):
    version: int
    placements: dict[str, dict[str, Any]]
    versions: list[PlacementVersion] = Field(description="the newest first")
