"""The routes for lists, similar items, completions, reverse steps and items: from requests to the library and back."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request
from starlette.responses import Response

from recfusion.core.arrays import IntArray
from recfusion.core.errors import InputError
from recfusion.inference.baskets import complete_sets
from recfusion.inference.example_histories import example_histories
from recfusion.inference.filters import apply_filters
from recfusion.inference.histories import histories_from_entries
from recfusion.inference.lists import UserList
from recfusion.inference.request import ItemFilters
from recfusion.inference.reverse_steps import reverse_steps
from recfusion.inference.similar import similar_columns
from recfusion.inference.why_not import why_not
from recfusion.server import responses, schemas
from recfusion.server.http_errors import Fault, reply, to_fault
from recfusion.server.item_map import packed_map
from recfusion.server.keys import Key
from recfusion.server.loaded_models import LoadedModel, LoadedModels
from recfusion.server.placements import Asked as Placed
from recfusion.server.placements import Kind, with_placement
from recfusion.server.service import Service
from recfusion.server.shown_items import fade_repeats, hidden_items, next_cursor
from recfusion.server.user_history import merged_history

_TOGETHER = 2000  # cost of the lists of a batch that are made together
_GREEDY = 11  # cost of an item of a list that is selected item by item

Asked = TypeVar("Asked", bound=schemas.Recommend)


def add_list_routes(app: FastAPI, service: Service) -> None:
    """Add the routes that read from the models."""

    # Routes return a Response, so that FastAPI documents `response_model` and does not validate answers with it.
    @app.post(
        "/recommend", summary="The best items for a history or a known user", response_model=responses.UserListBody
    )
    async def recommend(request: schemas.Recommend, http: Request) -> Response:
        request = _placed(service, http, "recommend", request)
        _check_cost(service, _cost(request), "k")
        return reply(await _recommend(service, await service.current(), request))

    @app.post("/recommend/batch", summary="Several lists at once", response_model=responses.ListBatch)
    async def recommend_batch(batch: schemas.RecommendBatch, http: Request) -> Response:
        requests = [_placed(service, http, "recommend", one, f"requests.{n}.") for n, one in enumerate(batch.requests)]
        _check_cost(service, sum(map(_cost, requests)), "requests")
        models = await service.current()
        answers: list[dict[str, Any]] = []
        while len(answers) < len(requests):
            part = _affordable(requests, len(answers))
            lists = (_recommend(service, models, requests[n], f"requests.{n}.") for n in part)
            answers += await asyncio.gather(*lists)
        return reply({"answers": answers})

    @app.post("/explain", summary="Why an item is or is not in a list", response_model=responses.Decision)
    async def explain(request: schemas.Explain, http: Request) -> Response:
        request = _placed(service, http, "recommend", request)
        _check_cost(service, _cost(request), "k")
        model, request = await _with_history(service, await service.current(), request)
        if model.bundle.columns_of([request.item])[0] < 0:
            raise Fault(404, "item", "The model knows no such item.")
        found = await service.score(lambda: why_not(model.bundle, request.item, request))
        return reply({"model": model.label, "decision": asdict(found)})

    @app.post("/similar", summary="The most similar items to an item", response_model=responses.SimilarItems)
    async def similar(request: schemas.Similar, http: Request) -> Response:
        request = _placed(service, http, "similar", request)
        _check_cost(service, request.k, "k")
        models = await service.current()
        model = models.choose(request.model)
        if model.bundle.columns_of([request.item])[0] < 0:
            raise Fault(404, "item", "The model knows no such item.")
        columns, values = await service.score(lambda: similar_columns(model.bundle, request.item, request.k, request))
        items = _ranked(model, columns.tolist(), values.tolist())
        return reply({"model": model.label, "generation": models.generation, "items": items})

    @app.post("/complete", summary="Items that complete a basket together", response_model=responses.Completions)
    async def complete(request: schemas.Complete, http: Request) -> Response:
        request = _placed(service, http, "complete", request)
        _check_cost(service, request.n * request.alternatives * _GREEDY, "n")
        models, n = await service.current(), request.n
        model = models.choose(request.model)
        basket, (unknown,) = histories_from_entries(model.bundle, [request.history])
        sets = await service.score(
            lambda: complete_sets(model.bundle, basket, n, request.alternatives, request.together, request)
        )
        alternatives = [{"items": _ranked(model, items.tolist(), scores.tolist())} for items, scores in sets]
        named = {"model": model.label, "generation": models.generation}
        return reply(named | {"unknown": unknown, "alternatives": alternatives})

    @app.post("/steps", summary="The reverse process on a history", response_model=responses.ReverseSteps)
    async def steps(request: schemas.Steps) -> Response:
        models = await service.current()
        model = models.choose(request.model)
        found = await service.score(lambda: reverse_steps(model.bundle, request.history, request.steps, request.seed))
        _, (unknown,) = histories_from_entries(model.bundle, [request.history])
        named = {"model": model.label, "generation": models.generation, "unknown": unknown}
        return reply(named | {"steps": [asdict(step) for step in found]})

    @app.get(
        "/items",
        summary="Search items by name, with typos; the most popular items for an empty query",
        response_model=responses.Items,
    )
    async def items(
        query: Annotated[str, Query(max_length=200)] = "", limit: Annotated[int, Query(ge=1, le=100)] = 10
    ) -> Response:
        main = (await service.current()).main
        found = await service.score(lambda: main.search.find(query, limit))
        return reply({"items": [main.facts.of(column) for column in found.tolist()]})

    @app.get(
        "/examples",
        summary="Histories to start with: popular items that are similar",
        response_model=responses.Examples,
    )
    async def examples(
        n: Annotated[int, Query(ge=1, le=10)] = 3, seed: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None
    ) -> Response:
        main = (await service.current()).main
        found = await service.score(lambda: example_histories(main.bundle, n, seed=seed))
        return reply({"examples": [{"items": [main.facts.of(column) for column in own]} for own in found]})

    @app.get("/map", summary="The map of the items: similar ones lie together", response_model=responses.ItemMap)
    async def item_map(http: Request, model: schemas.ModelName = None) -> Response:
        chosen = (await service.current()).choose(model)
        found = await service.score(lambda: packed_map(chosen.bundle, chosen.label))
        return found.reply(http, {})

    @app.get("/popular", summary="The most popular items that filters allow", response_model=responses.Items)
    async def popular(request: Annotated[schemas.Popular, Query()]) -> Response:
        model = (await service.current()).choose(request.model)
        columns = await service.score(lambda: _popular(model, request.k, request))
        return reply({"items": [model.facts.of(column) for column in columns.tolist()]})


def _placed(service: Service, http: Request, kind: Kind, request: Placed, prefix: str = "") -> Placed:
    """Return a request with the settings of its placement; a key may be limited to some placements."""
    key: Key = http.scope["key"]
    if key.placements is not None and request.placement not in key.placements:
        listed = ", ".join(sorted(key.placements))
        raise Fault(403, f"{prefix}placement", f"This key is for the placements {listed}: name one of them.")
    if key.origins is not None and getattr(request, "user", None) is not None:
        raise Fault(403, f"{prefix}user", "Visitors know this key, so it may not ask for a user: send a history.")
    try:
        return with_placement(service.placements, kind, request)
    except InputError as error:
        raise to_fault(error, prefix) from None


def _popular(model: LoadedModel, k: int, filters: ItemFilters) -> IntArray:
    """Return the columns of the K most popular items that the filters allow."""
    found, mask = model.search.find("", len(model.bundle.items)), apply_filters(filters, model.bundle).mask
    return (found if mask is None else found[mask[found]])[:k]


def _cost(request: schemas.Recommend) -> int:
    """Return the cost of a list; a unit takes about 20 microseconds for a model of some thousand items."""
    return request.k * (request.why + (_GREEDY if request.at_most or request.reranking.is_greedy else 1))


def _check_cost(service: Service, cost: int, field: str) -> None:
    if cost > (most := service.settings.max_cost):
        raise Fault(
            422,
            field,
            f"Expected a request with a cost of at most {most:,}, got {cost:,}: the cost is the sum over its lists of "
            f"k x (1 + why), or k x ({_GREEDY} + why) with at_most, diversity, shares, pins or new_share, and "
            f"n x alternatives x {_GREEDY} of a completion. Ask for fewer or shorter lists.",
        )


def _affordable(requests: Sequence[schemas.Recommend], first: int) -> range:
    """Return the next lists of a batch to make together, so that other requests wait only for some of them."""
    last, cost = first + 1, _cost(requests[first])
    while last < len(requests) and (cost := cost + _cost(requests[last])) <= _TOGETHER:
        last += 1
    return range(first, last)


async def _recommend(
    service: Service, models: LoadedModels, request: schemas.Recommend, prefix: str = ""
) -> dict[str, Any]:
    """Return one list; `prefix` comes before the field of an error."""
    user, k, now = request.user, request.k, time.time()
    shown: dict[str, tuple[float, int]] = {}
    if user is not None and request.is_remembered:
        shown = await service.read(partial(service.reading.shown_to, user))
    try:
        model, request = await _with_history(service, models, request)
        more = len(shown) if request.fade > 0 else 0  # items that unseen ones may replace
        request = request.model_copy(update={"k": k + more})
        found = await _score(service, model, request, hidden_items(request, shown, now))
    except (InputError, Fault) as error:
        raise to_fault(error, prefix) from None
    service.metrics.lists.labels(model.label, found.basis).inc()
    if found.unknown:
        service.metrics.unknown.inc(len(found.unknown))
    items, explanation = _ranked(model, found.items, found.scores), found.explanation
    for place, item in enumerate(items):
        item["because"] = [] if explanation is None else [vars(reason) for reason in explanation.because[place]]
        item["other"] = None if explanation is None else explanation.other[place]
        item["reasons"] = None if explanation is None else explanation.kind
    items, cursor = fade_repeats(items, shown, request.fade, k, request.reranking.pins), None
    if user is not None and request.is_remembered:
        cursor = next_cursor(request, now) if len(items) == k else None
        await service.write(lambda store: store.remember_shown(user, [item["item"] for item in items], now))
    return {
        "model": model.label,
        "version": model.version,
        "generation": models.generation,
        "basis": found.basis,
        "unknown": found.unknown,
        "items": items,
        "recommendation_id": service.count_list(model, user, request.placement, [item["item"] for item in items]),
        "cursor": cursor,
    }


async def _score(service: Service, model: LoadedModel, request: schemas.Recommend, hidden: tuple[str, ...]) -> UserList:
    """Return a list without hidden items; it is empty if all items that the filters allow are hidden."""
    found: UserList
    if hidden:
        with suppress(InputError):
            unseen = request.model_copy(update={"deny": (*request.deny, *hidden)})
            found = await service.score((model, unseen))
            return found
    found = await service.score((model, request))
    return replace(found, items=[], scores=[], explanation=None) if hidden else found


async def _with_history(service: Service, models: LoadedModels, request: Asked) -> tuple[LoadedModel, Asked]:
    """Return the model of a request, and the request with the history of its user."""
    user, given = request.user, request.history or ()
    model = models.choose(request.model, None if user is None else service.position(user))
    if user is None:
        return model, request
    history, returned = await service.read(
        lambda: merged_history(service.reading, user, given, model.bundle, models.known)
    )
    return model, request.model_copy(update={"history": history, "deny": (*request.deny, *returned)})


def _ranked(model: LoadedModel, columns: Sequence[int], scores: Sequence[float]) -> list[dict[str, Any]]:
    return [
        {"rank": rank, "score": score, **model.facts.of(column)}
        for rank, (column, score) in enumerate(zip(columns, scores, strict=True), 1)
    ]
