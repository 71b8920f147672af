"""The HTTP routes."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from recfusion.core.errors import InputError, choices
from recfusion.core.extras import require
from recfusion.inference.bundle import Bundle
from recfusion.inference.new_items import can_add
from recfusion.inference.request import errors_about
from recfusion.server import responses, schemas
from recfusion.server.client_code import javascript_client, python_client
from recfusion.server.compression import Packed
from recfusion.server.config import Settings
from recfusion.server.event_store import Event
from recfusion.server.guard import OPEN, PAGES, Guard
from recfusion.server.http_errors import ERRORS, Fault, fault_reply, log_failure, reply, to_fault
from recfusion.server.keys import Keys, scope_of
from recfusion.server.list_routes import add_list_routes
from recfusion.server.loaded_models import LoadedModels, check_change
from recfusion.server.metrics import Metrics
from recfusion.server.model_info import describe
from recfusion.server.service import Service
from recfusion.server.shops import Shops
from recfusion.server.workbench import add_workbench_routes
from recfusion.server.worker_registry import trouble

log = logging.getLogger(__name__)
SETTINGS = "RECFUSION_SERVE"  # environment variable with the settings of worker processes
_PAGE = Path(__file__).parent / "page"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_TICK = 0.25  # seconds between checks of the event store and the model folder
_HOUR = 3600.0
_VISITORS = ("view", "click", "skip")  # kinds of events that pages of a shop may send
ERASE_SECONDS = 3.0  # that a deletion waits for other readers of the event store
_ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": responses.Error}, "5XX": {"model": responses.Error}}


def from_environment() -> ASGIApp:
    """Return the application of a worker process."""
    settings = Settings.model_validate_json(os.environ[SETTINGS])
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("recfusion").setLevel(logging.DEBUG if settings.verbose else logging.WARNING)
    return make_app(settings)


def make_app(settings: Settings) -> ASGIApp:
    """Return the application. It loads its models first, so that a process that listens is ready."""
    if settings.shops:
        return Shops(settings, {shop.shop: _shop_app(shop) for shop in settings.shops})
    return _shop_app(settings)


def _shop_app(settings: Settings) -> Guard:
    metrics = Metrics(settings.shop)
    service = Service(settings, metrics)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(_run_maintenance(service))
        async with endpoint:
            yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        service.close()

    app = FastAPI(
        title="recfusion",
        summary="Recommendations from a model folder.",
        version=version("recfusion"),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        responses=_ERRORS,
        exception_handlers=dict.fromkeys(ERRORS, _answer_error),
    )
    add_list_routes(app, service)
    _add_events(app, service)
    _add_monitoring(app, service)
    add_workbench_routes(app, service)
    keys = Keys.of(settings)
    _add_security(app, keys, () if settings.shop else OPEN)
    _add_page(app)
    endpoint: contextlib.AbstractAsyncContextManager[None] = contextlib.nullcontext()
    if settings.mcp:
        require("mcp", "serve --mcp")
        from recfusion.server.mcp_endpoint import add_mcp

        endpoint = add_mcp(app)
    routes = frozenset(getattr(route, "path", "") for route in app.routes)
    return Guard(app, settings=settings, keys=keys, metrics=metrics, routes=routes)


def _add_security(app: FastAPI, keys: Keys, open_paths: Sequence[str]) -> None:
    """Describe in the OpenAPI document which key each route needs."""
    document = app.openapi()
    document["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "a key of the service with the scope of the route"}
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            scope = scope_of(method.upper(), path)
            is_open = path in open_paths or not keys.needed_for(scope)
            operation["security"] = [{}] if path in open_paths else [*([{}] if is_open else []), {"key": [scope]}]
    app.openapi = lambda: document  # type: ignore[method-assign]  # FastAPI writes it anew after each further route


async def _answer_error(_: Request, error: Exception) -> Response:
    return fault_reply(to_fault(error))


def _add_events(app: FastAPI, service: Service) -> None:
    created: dict[str, Any] = {"status_code": 201, "response_model": responses.Recorded}

    @app.post("/events", summary="Record what a user did with an item", **created)
    async def events(event: schemas.EventBody, http: Request) -> Response:
        return await _record(service, http, [event])

    @app.post("/events/batch", summary="Record several events together", **created)
    async def event_batch(batch: schemas.EventBatch, http: Request) -> Response:
        return await _record(service, http, batch.events, "events.")

    @app.post(
        "/events/forget",
        summary="Delete all events of a user",
        response_model=responses.Deleted,
        responses={
            202: {
                "model": responses.Deleted,
                "description": "deleted, and not yet erased from SQLite's log, or not yet removed from the weights",
            }
        },
    )
    async def forget(request: schemas.Forget) -> Response:
        deleted, unlearned = await service.forget(request.user)
        erased = await service.erase(ERASE_SECONDS)
        more = {} if unlearned is None else {"unlearned": unlearned}
        return reply({"deleted": deleted, "erased": erased} | more, 200 if erased and unlearned is not False else 202)

    @app.put(
        "/items",
        summary="Change columns of items, such as stock and price, or describe new items",
        response_model=responses.ChangedItems,
    )
    async def change_items(request: schemas.ItemChanges) -> Response:
        main = (await service.current()).main
        changed: dict[str, dict[str, Any]] = {}
        for number, change in enumerate(request.items):
            for name, value in change.columns.items():
                with errors_about(f"items.{number}.columns.{name}"):
                    check_change(main.base, name, value)
            changed.setdefault(change.item, {}).update(change.columns)
        await service.try_changes(changed)
        await service.write(lambda store: store.change(changed))
        unknown = _unknown((await service.current()).main.bundle, list(changed))
        still_unknown = set(unknown)
        added = [item for item in _unknown(main.bundle, list(changed)) if item not in still_unknown]
        note, recipe = None, main.base.recipes.items
        if unknown and recipe is not None and can_add(main.base):
            columns = ", ".join(column.name for column in recipe.columns)
            note = (
                f"Unknown items have ids of another kind than the model's, or none of its features: describe {columns}."
            )
        elif unknown:
            note = (
                "The model reads no features of items: unknown items are stored, and in no list until a model has them."
            )
        return reply({"changed": len(changed), "added": added, "unknown": unknown, "note": note})

    @app.delete(
        "/items",
        summary="Clear changed columns, so that the model's item table counts again; all without parameters",
        response_model=responses.Cleared,
    )
    async def clear_items(request: Annotated[schemas.ClearItems, Query()]) -> Response:
        cleared = await service.write(lambda store: store.clear_changes(request.item, request.column))
        await service.current()
        return reply({"cleared": cleared})

    @app.post(
        "/admin/reload",
        summary="Read the model folders again and replace the models in one step",
        response_model=responses.Reloaded,
    )
    async def reload() -> Response:
        loaded, processes = await service.reload()
        named = {"models": _versions(service.models), "generation": service.models.generation}
        return reply(named | {"processes": {"loaded": loaded, "of": processes}})


def _unknown(bundle: Bundle, ids: Sequence[str]) -> list[str]:
    return [item for item, column in zip(ids, bundle.columns_of(ids).tolist(), strict=True) if column < 0]


async def _record(service: Service, http: Request, bodies: list[schemas.EventBody], prefix: str = "") -> Response:
    for number, one in enumerate(bodies):
        field = f"{prefix}{number}.kind" if prefix else "kind"
        if http.scope["key"].origins is not None and one.kind not in _VISITORS:
            allowed = f"Visitors know this key, so it is for events of the kinds {', '.join(_VISITORS)}."
            raise Fault(403, field, allowed)
        if one.kind not in service.reading.weights:
            raise choices("kind", one.kind, service.reading.weights, field)
    events = [
        Event(
            one.user, one.item, one.kind, one.time, one.recommendation_id, one.quantity, one.price, one.idempotency_key
        )
        for one in bodies
    ]
    new = await service.write(lambda store: store.add(events))
    for event in events:
        service.metrics.events.labels(event.kind).inc()
    return reply({"recorded": new, "repeated": len(events) - new}, 201)


def _versions(models: LoadedModels) -> list[dict[str, str]]:
    return [{"name": model.label, "version": model.version} for model in models.every]


def _add_monitoring(app: FastAPI, service: Service) -> None:
    @app.get(
        "/model",
        summary="The models, the columns to filter by and the re-ranking controls",
        response_model=responses.ModelInfo,
    )
    async def model() -> Response:
        models = await service.current()
        return reply(await service.score(lambda: describe(models, service.settings.image_origin)))

    @app.get("/placements", summary="The placements that requests can name", response_model=responses.Placements)
    async def placements() -> Response:
        found = service.placements.items()
        return reply({"placements": [{"name": n, "kind": one.kind, "sets": sorted(one.values)} for n, one in found]})

    @app.get("/live", summary="Whether the process runs", response_model=responses.Live)
    async def live() -> Response:
        return reply({"live": True})

    @app.get(
        "/ready", summary="The loaded models, and why the last reload failed, if it did", response_model=responses.Ready
    )
    async def ready() -> Response:
        models = await service.current()  # answers 503 if changed item columns cannot be applied
        ignored = sorted({name for model in models.every for name in model.misfits})
        named = {"ready": True, "models": _versions(models), "generation": models.generation}
        failed = await service.read(partial(trouble, service.reading))
        return reply(named | {"trouble": failed, "ignored_columns": ignored})

    @app.get("/metrics", summary="Counters and latencies for Prometheus", response_class=PlainTextResponse)
    async def metrics() -> Response:
        ages = {model.label: model.age for model in service.models.every}
        return Response(service.metrics.text(ages), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_page(app: FastAPI) -> None:
    # Only names that exist are looked up: no name of a request reaches the file system.
    files = [path for path in _PAGE.iterdir() if path.suffix in _TYPES]
    contents = {path.name: Packed(path.read_bytes(), _TYPES[path.suffix]) for path in files}
    document = app.openapi()
    contents["client.js"] = Packed(javascript_client(document).encode(), _TYPES[".js"])
    contents["client.py"] = Packed(python_client(document).encode(), "text/plain")

    async def file(request: Request) -> Response:
        name = request.path_params.get("name") or PAGES.get(request.scope["path"], "")
        if name not in contents:
            raise Fault(404, "path", "There is no such file.")
        return contents[name].reply(request, {"Cache-Control": "no-cache"})

    for path in (*PAGES, "/static/{name:path}"):
        app.add_api_route(path, file, include_in_schema=False)


async def _run_maintenance(service: Service) -> None:
    """Follow the other processes and, with `watch`, the model folder; delete old events."""
    last_expired = 0.0
    while True:
        try:
            await service.flush()
            await service.erase()
            await service.follow()
            await service.learn()
            loop_time = asyncio.get_running_loop().time()
            if loop_time - last_expired > _HOUR:
                last_expired = loop_time
                await service.expire()
        except (Fault, InputError, OSError):
            pass  # `trouble` has the message, or the next round tries again
        except Exception as error:
            log_failure("Maintenance of the service failed", error)
        await asyncio.sleep(_TICK)
