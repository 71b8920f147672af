"""From HTTP requests to calls of the library, and from its results to JSON."""

from collections.abc import Sequence
from typing import Any

from recfusion.core.errors import InputError
from recfusion.inference.baskets import complete_sets
from recfusion.inference.histories import histories_from_entries
from recfusion.inference.lists import UserList
from recfusion.inference.new_items import can_add
from recfusion.inference.reverse_steps import reverse_steps
from recfusion.inference.similar import similar_columns
from recfusion.server import schemas
from recfusion.server.http_errors import Fault, input_fault
from recfusion.server.loaded_models import LoadedModel, LoadedModels
from recfusion.server.service import ListJob, Service


async def recommend(
    service: Service, models: LoadedModels, request: schemas.Recommend, prefix: str = ""
) -> dict[str, Any]:
    """Return one list; `prefix` comes before the field of an error."""
    try:
        model = models.choose(request.model, None if request.user is None else service.position(request.user))
        if request.user is not None:
            history = service.merged_history(request.user, request.history or (), model.bundle)
            request = request.model_copy(update={"history": history})
        found = await service.score(ListJob(model, request))
    except InputError as error:
        raise input_fault(error, prefix) from None
    except Fault as fault:
        raise Fault(fault.status, prefix + fault.field, fault.sentence, fault.headers) from None
    service.metrics.lists.labels(model.label, found.basis).inc()
    if found.unknown:
        service.metrics.unknown.inc(len(found.unknown))
    return _list(model, found) | {"recommendation_id": service.count_list(model, request.user)}


async def similar(service: Service, models: LoadedModels, request: schemas.Similar) -> dict[str, Any]:
    """Return the most similar items."""
    model = models.choose(request.model)
    if model.bundle.columns_of([request.item])[0] < 0:
        raise Fault(404, "item", "The model knows no such item.")
    columns, values = await service.score(lambda: similar_columns(model.bundle, request.item, request.k, request))
    return {"model": model.label, "items": _ranked(model, columns.tolist(), values.tolist())}


async def complete(service: Service, models: LoadedModels, request: schemas.Complete) -> dict[str, Any]:
    """Return alternatives that complete a basket."""
    model = models.choose(request.model)
    basket, (unknown,) = histories_from_entries(model.bundle, [request.history])
    sets = await service.score(
        lambda: complete_sets(
            *(model.bundle, basket.matrix, request.n),
            alternatives=request.alternatives,
            together=request.together,
            filters=request,
        )
    )
    alternatives = [{"items": _ranked(model, items.tolist(), scores.tolist())} for items, scores in sets]
    return {"model": model.label, "unknown": unknown, "alternatives": alternatives}


async def steps(service: Service, models: LoadedModels, request: schemas.Steps) -> dict[str, Any]:
    """Return the reverse process on a history."""
    model = models.choose(request.model)
    found = await service.score(lambda: reverse_steps(model.bundle, request.history, request.steps, request.seed))
    names = model.bundle.names
    shown = [
        {
            "share": round(step.share, 4),
            "items": [
                {
                    "item": names[one.column][0],
                    "name": names[one.column][1],
                    "known": one.survived,
                    "in_history": one.in_history,
                    "score": one.score,
                }
                for one in step.items
            ],
        }
        for step in found
    ]
    return {"model": model.label, "steps": shown}


def changed_items(
    model: LoadedModel, ids: Sequence[str], were_unknown: Sequence[bool], are_unknown: Sequence[bool]
) -> dict[str, Any]:
    """Return which changed items are new in lists from now on, and which the model still does not know."""
    unknown = [item for item, is_unknown in zip(ids, are_unknown, strict=True) if is_unknown]
    added = [item for item, was, still in zip(ids, were_unknown, are_unknown, strict=True) if was and not still]
    note = None
    if unknown and can_add(model.base):
        recipe = model.base.recipes.items
        columns = ", ".join(column.name for column in recipe.columns) if recipe else ""
        note = f"Unknown items have ids of another kind than the model's, or none of its features: describe {columns}."
    elif unknown:
        note = "The model reads no features of items: unknown items are stored, and in no list until a model has them."
    return {"changed": len(ids), "added": added, "unknown": unknown, "note": note}


def _list(model: LoadedModel, found: UserList) -> dict[str, Any]:
    items = _ranked(model, found.items, found.scores)
    kind, because = (None, None) if found.explanation is None else (found.explanation.kind, found.explanation.because)
    for place, item in enumerate(items):
        reasons = because[place] if because is not None else ()
        item["because"] = [{"items": list(one.items), "text": one.text, "weight": one.weight} for one in reasons]
        item["reasons"] = kind
    return {
        "model": model.label,
        "version": model.version,
        "basis": found.basis,
        "unknown": found.unknown,
        "items": items,
    }


def _ranked(model: LoadedModel, columns: Sequence[int], scores: Sequence[float]) -> list[dict[str, Any]]:
    return [
        {"rank": rank, "score": score, **model.facts.of(column)}
        for rank, (column, score) in enumerate(zip(columns, scores, strict=True), 1)
    ]
