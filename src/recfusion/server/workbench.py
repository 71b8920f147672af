"""The routes of the workbench: what lists led to, what they show, and an editor of placements with versions."""

import time
from collections import Counter
from typing import Any

import numpy as np
from fastapi import FastAPI
from pydantic import Field
from starlette.responses import Response

from recfusion.evaluation.list_metrics import gini_index
from recfusion.inference.bundle import COUNT
from recfusion.inference.filters import apply_filters
from recfusion.inference.request import ItemFilters, Record
from recfusion.server import responses
from recfusion.server.event_store import Store
from recfusion.server.http_errors import Fault, reply
from recfusion.server.loaded_models import LoadedModel
from recfusion.server.outcomes import compare_outcomes
from recfusion.server.service import Service

DAYS = 90  # that are reported
_MOST = 20  # items of a table
_HIDES = ("skip", "dislike")  # events that hide an item


class NewPlacements(Record):
    """Placements that replace all others."""

    placements: dict[str, dict[str, Any]] = Field(description="a table per placement, as in the file of the shop")
    version: int = Field(ge=0, description="the version that was edited; another one since then is a conflict")


class Undo(Record):
    """Ask for the placements before a version."""

    version: int = Field(ge=1, description="the version to undo, which must be the newest")


class Counted(Record):
    """A filter to try."""

    where: str | None = Field(None, max_length=10_000, description="a condition on item columns")
    model: str | None = Field(None, description="one of the served models")


def add_workbench_routes(app: FastAPI, service: Service) -> None:
    """Add the routes that need the scope admin and serve the workbench."""

    @app.get("/admin/stats", summary="What lists showed and led to", response_model=responses.Stats)
    async def stats() -> Response:
        main = (await service.current()).main
        await service.flush()
        found = await service.read(lambda: read_stats(service.reading, main))
        return reply(found | {"latency": service.metrics.latency()})

    @app.post("/admin/count", summary="How many items a filter keeps", response_model=responses.Kept)
    async def count(request: Counted) -> Response:
        bundle = (await service.current()).choose(request.model).bundle
        mask = await service.score(lambda: apply_filters(ItemFilters(where=request.where), bundle).mask)
        return reply({"keeps": len(bundle.items) if mask is None else int(mask.sum()), "of": len(bundle.items)})

    versions: dict[str, Any] = {"response_model": responses.PlacementVersions}

    @app.get("/admin/placements", summary="The placements and their versions", **versions)
    async def placements() -> Response:
        return reply(await _versions(service))

    @app.put("/admin/placements", summary="Replace the placements", **versions)
    async def replace_placements(request: NewPlacements) -> Response:
        await service.set_placements(request.placements, "edit", request.version)
        return reply(await _versions(service))

    @app.post("/admin/placements/undo", summary="Use the placements before this version again", **versions)
    async def undo(request: Undo) -> Response:
        stored = await service.read(service.reading.placements)
        if len(stored) < 2:
            raise Fault(409, "version", "There is no earlier version of the placements.")
        await service.set_placements(stored[1][3], "undo", request.version)
        return reply(await _versions(service))


async def _versions(service: Service) -> dict[str, Any]:
    rows = await service.read(service.reading.placements)
    listed = [
        {"version": number, "time": when, "change": change, "names": sorted(tables)}
        for number, when, change, tables in rows
    ]
    return {"version": rows[0][0] if rows else 0, "placements": rows[0][3] if rows else {}, "versions": listed}


def read_stats(store: Store, model: LoadedModel) -> dict[str, Any]:
    """Return lists and events by day, outcomes by model and placement, and which items lists show."""
    first = int(time.time() // 86400) - DAYS + 1
    lists = store.rows(f"SELECT day, model, placement, sum(lists) FROM shown WHERE day >= {first} GROUP BY 1, 2, 3")
    recent = f"FROM events WHERE time >= {first * 86400}"
    days = store.rows(f"SELECT CAST(time / 86400 AS INTEGER), kind, count(*) {recent} GROUP BY 1, 2")
    outcomes = {by: [vars(one) for one in compare_outcomes(store, by)[0]] for by in ("model", "placement")}
    return {
        "days": DAYS,
        "lists": [dict(zip(("day", "model", "placement", "lists"), row, strict=True)) for row in lists],
        "events": [dict(zip(("day", "kind", "events"), row, strict=True)) for row in days],
        "outcomes": outcomes,
        "catalogue": _exposure(store, model, first),
    }


def _exposure(store: Store, model: LoadedModel, first: int) -> dict[str, Any]:
    """Return how many items of the model lists showed, how unequally, and items that stand out."""
    shown = dict(store.rows(f"SELECT item, sum(lists) FROM exposures WHERE day >= {first} GROUP BY item"))
    recent = f"FROM events WHERE time >= {first * 86400} AND kind IN {_HIDES}"
    hidden = Counter(dict(store.rows(f"SELECT item, count(*) {recent} GROUP BY item")))
    items = model.bundle.items
    ids = items["item"].cast(str).to_list()
    counts = np.array([shown.get(item, 0) for item in ids])
    order = np.argsort(-items[COUNT].to_numpy(), kind="stable")
    never = [int(column) for column in order if counts[column] == 0][:_MOST]
    known = {item: column for column, item in enumerate(ids)}
    most = [(known[item], n) for item, n in hidden.most_common(_MOST) if item in known]
    return {
        "items": len(ids),
        "shown": int((counts > 0).sum()),
        "gini": gini_index(counts) if counts.any() else None,
        "never": [model.facts.of(column) for column in never],
        "hidden": [model.facts.of(column) | {"events": n} for column, n in most],
    }
