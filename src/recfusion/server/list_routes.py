"""The routes for lists, similar items, completions, reverse steps and items: from requests to the library and back."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import FastAPI, Query
from starlette.responses import Response

from recfusion.core.errors import InputError
from recfusion.inference.baskets import complete_sets
from recfusion.inference.histories import histories_from_entries
from recfusion.inference.reverse_steps import reverse_steps
from recfusion.inference.similar import similar_columns
from recfusion.server import responses, schemas
from recfusion.server.http_errors import Fault, reply, to_fault
from recfusion.server.loaded_models import LoadedModel, LoadedModels
from recfusion.server.service import Service


def add_list_routes(app: FastAPI, service: Service) -> None:
    """Add the routes that read from the models."""

    # Routes return a Response, so that FastAPI documents `response_model` and does not validate answers with it.
    @app.post(
        "/recommend", summary="The best items for a history or a known user", response_model=responses.UserListBody
    )
    async def recommend(request: schemas.Recommend) -> Response:
        return reply(await _recommend(service, await service.current(), request))

    @app.post("/recommend/batch", summary="Several lists at once", response_model=responses.ListBatch)
    async def recommend_batch(batch: schemas.RecommendBatch) -> Response:
        models = await service.current()
        answers = await asyncio.gather(
            *(_recommend(service, models, one, f"requests.{n}.") for n, one in enumerate(batch.requests))
        )
        return reply({"answers": answers})

    @app.post("/similar", summary="The most similar items to an item", response_model=responses.SimilarItems)
    async def similar(request: schemas.Similar) -> Response:
        model = (await service.current()).choose(request.model)
        if model.bundle.columns_of([request.item])[0] < 0:
            raise Fault(404, "item", "The model knows no such item.")
        columns, values = await service.score(lambda: similar_columns(model.bundle, request.item, request.k, request))
        return reply({"model": model.label, "items": _ranked(model, columns.tolist(), values.tolist())})

    @app.post("/complete", summary="Items that complete a basket together", response_model=responses.Completions)
    async def complete(request: schemas.Complete) -> Response:
        model, n = (await service.current()).choose(request.model), request.n
        basket, (unknown,) = histories_from_entries(model.bundle, [request.history])
        sets = await service.score(
            lambda: complete_sets(model.bundle, basket.matrix, n, request.alternatives, request.together, request)
        )
        alternatives = [{"items": _ranked(model, items.tolist(), scores.tolist())} for items, scores in sets]
        return reply({"model": model.label, "unknown": unknown, "alternatives": alternatives})

    @app.post("/steps", summary="The reverse process on a history", response_model=responses.ReverseSteps)
    async def steps(request: schemas.Steps) -> Response:
        model = (await service.current()).choose(request.model)
        found = await service.score(lambda: reverse_steps(model.bundle, request.history, request.steps, request.seed))
        return reply({"model": model.label, "steps": [asdict(step) for step in found]})

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

    @app.get("/popular", summary="The most popular items", response_model=responses.Items)
    async def popular(k: Annotated[int, Query(ge=1, le=schemas.MOST_K)] = 10) -> Response:
        main = (await service.current()).main
        return reply({"items": [main.facts.of(column) for column in main.search.find("", k).tolist()]})


async def _recommend(
    service: Service, models: LoadedModels, request: schemas.Recommend, prefix: str = ""
) -> dict[str, Any]:
    """Return one list; `prefix` comes before the field of an error."""
    try:
        model = models.choose(request.model, None if request.user is None else service.position(request.user))
        if request.user is not None:
            history = service.merged_history(request.user, request.history or (), model.bundle)
            request = request.model_copy(update={"history": history})
        found = await service.score((model, request))
    except (InputError, Fault) as error:
        raise to_fault(error, prefix) from None
    service.metrics.lists.labels(model.label, found.basis).inc()
    if found.unknown:
        service.metrics.unknown.inc(len(found.unknown))
    items, explanation = _ranked(model, found.items, found.scores), found.explanation
    for place, item in enumerate(items):
        item["because"] = [] if explanation is None else [vars(reason) for reason in explanation.because[place]]
        item["reasons"] = None if explanation is None else explanation.kind
    return {
        "model": model.label,
        "version": model.version,
        "basis": found.basis,
        "unknown": found.unknown,
        "items": items,
        "recommendation_id": service.count_list(model, request.user),
    }


def _ranked(model: LoadedModel, columns: Sequence[int], scores: Sequence[float]) -> list[dict[str, Any]]:
    return [
        {"rank": rank, "score": score, **model.facts.of(column)}
        for rank, (column, score) in enumerate(zip(columns, scores, strict=True), 1)
    ]
