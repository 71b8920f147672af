"""The HTTP routes."""

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.types import ASGIApp

from recfusion.core.errors import InputError
from recfusion.inference.request import errors_about
from recfusion.server import handlers, responses, schemas
from recfusion.server.config import Settings
from recfusion.server.event_store import Event
from recfusion.server.guard import Guard
from recfusion.server.http_errors import Fault, fault_reply, input_fault, log_failure, reply, validation_fault
from recfusion.server.keys import Keys
from recfusion.server.loaded_models import LoadedModels, check_change
from recfusion.server.metrics import Metrics
from recfusion.server.model_info import describe
from recfusion.server.service import Service

log = logging.getLogger(__name__)
SETTINGS = "RECFUSION_SERVE"  # environment variable with the settings of worker processes
_PAGE = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
_TICK = 0.25  # seconds between checks of the event store and the model folder
_HOUR = 3600.0
_ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": responses.Error}, "5XX": {"model": responses.Error}}


def from_environment() -> ASGIApp:
    """Return the application of a worker process."""
    settings = Settings.model_validate_json(os.environ[SETTINGS])
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("recfusion").setLevel(logging.DEBUG if settings.verbose else logging.WARNING)
    return make_app(settings)


def make_app(settings: Settings) -> ASGIApp:
    """Return the application. It loads its models first, so that a process that listens is ready."""
    metrics = Metrics()
    service = Service(settings, metrics)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(_run_maintenance(service))
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        service.close()

    app = FastAPI(
        title="recfusion",
        summary="Recommendations from a model folder.",
        version=_version(),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        responses=_ERRORS,
    )
    _add_error_handlers(app)
    _add_lists(app, service)
    _add_events(app, service)
    _add_monitoring(app, service)
    _add_page(app)
    routes = frozenset(getattr(route, "path", "") for route in app.routes)
    return Guard(app, settings=settings, keys=Keys.of(settings), metrics=metrics, routes=routes)


def _add_lists(app: FastAPI, service: Service) -> None:
    # Handlers return a Response, so that FastAPI documents `response_model` and does not validate answers with it.
    @app.post(
        "/recommend", summary="The best items for a history or a known user", response_model=responses.UserListBody
    )
    async def recommend(request: schemas.Recommend) -> Response:
        return reply(await handlers.recommend(service, await service.current(), request))

    @app.post("/recommend/batch", summary="Several lists at once", response_model=responses.ListBatch)
    async def recommend_batch(batch: schemas.RecommendBatch) -> Response:
        models = await service.current()
        answers = await asyncio.gather(
            *(handlers.recommend(service, models, one, f"requests.{n}.") for n, one in enumerate(batch.requests))
        )
        return reply({"answers": answers})

    @app.post("/similar", summary="The most similar items to an item", response_model=responses.SimilarItems)
    async def similar(request: schemas.Similar) -> Response:
        return reply(await handlers.similar(service, await service.current(), request))

    @app.post("/complete", summary="Items that complete a basket together", response_model=responses.Completions)
    async def complete(request: schemas.Complete) -> Response:
        return reply(await handlers.complete(service, await service.current(), request))

    @app.post("/steps", summary="The reverse process on a history", response_model=responses.ReverseSteps)
    async def steps(request: schemas.Steps) -> Response:
        return reply(await handlers.steps(service, await service.current(), request))

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

    @app.get(
        "/model",
        summary="The models, the columns to filter by and the re-ranking controls",
        response_model=responses.ModelInfo,
    )
    async def model() -> Response:
        models = await service.current()
        return reply(await service.score(lambda: describe(models)))


def _add_events(app: FastAPI, service: Service) -> None:
    created: dict[str, Any] = {"status_code": 201, "response_model": responses.Recorded}

    @app.post("/events", summary="Record what a user did with an item", **created)
    async def events(event: schemas.EventBody) -> Response:
        return await _record(service, [event])

    @app.post("/events/batch", summary="Record several events together", **created)
    async def event_batch(batch: schemas.EventBatch) -> Response:
        return await _record(service, batch.events)

    @app.post("/events/forget", summary="Delete all events of a user", response_model=responses.Deleted)
    async def forget(request: schemas.Forget) -> Response:
        deleted = await service.write(lambda store: store.forget(request.user))
        await service.shrink()
        return reply({"deleted": deleted})

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
                    check_change(main.bundle, name, value)
            changed.setdefault(change.item, {}).update(change.columns)
        await service.write(lambda store: store.change(changed))
        ids, before = list(changed), main.bundle.columns_of(list(changed)) < 0
        after = (await service.current()).main.bundle.columns_of(ids) < 0
        return reply(handlers.changed_items(main, ids, before.tolist(), after.tolist()))

    @app.post(
        "/admin/reload",
        summary="Read the model folders again and replace the models in one step",
        response_model=responses.Reloaded,
    )
    async def reload() -> Response:
        try:
            loaded, processes = await service.reload()
        except (InputError, OSError):
            problem = f"The new model cannot be served, the old one stays. {service.trouble}"
            raise Fault(409, "model", problem) from None
        return reply({"models": _versions(service.models), "processes": {"loaded": loaded, "of": processes}})


async def _record(service: Service, bodies: list[schemas.EventBody]) -> Response:
    events = [Event(one.user, one.item, one.kind, one.time, one.recommendation_id) for one in bodies]
    await service.write(lambda store: store.add(events))
    for event in events:
        service.metrics.events.labels(event.kind).inc()
    return reply({"recorded": len(events)}, 201)


def _versions(models: LoadedModels) -> list[dict[str, str]]:
    return [{"name": model.label, "version": model.version} for model in models.every]


def _add_monitoring(app: FastAPI, service: Service) -> None:
    @app.get("/live", summary="Whether the process runs", response_model=responses.Live)
    async def live() -> Response:
        return reply({"live": True})

    @app.get(
        "/ready", summary="The loaded models, and why the last reload failed, if it did", response_model=responses.Ready
    )
    async def ready() -> Response:
        return reply({"ready": True, "models": _versions(service.models), "trouble": service.trouble})

    @app.get("/metrics", summary="Counters and latencies for Prometheus", response_class=PlainTextResponse)
    async def metrics() -> Response:
        ages = {model.label: model.age for model in service.models.every}
        return Response(service.metrics.text(ages), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return _file("index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return _file("routes.html")

    @app.get("/static/{name:path}", include_in_schema=False)
    async def static(name: str) -> Response:
        return _file(name)


def _file(name: str) -> Response:
    path = (_PAGE / name).resolve()
    if not path.is_relative_to(_PAGE.resolve()) or path.suffix not in _TYPES or not path.is_file():
        raise Fault(404, "path", "There is no such file.")
    return FileResponse(path, media_type=_TYPES[path.suffix], headers={"Cache-Control": "no-cache"})


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(Fault)
    async def fault(_: Request, error: Fault) -> Response:
        return fault_reply(error)

    @app.exception_handler(InputError)
    async def wrong_input(_: Request, error: InputError) -> Response:
        return fault_reply(input_fault(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return fault_reply(validation_fault(error.errors()))

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> Response:
        field = {404: "path", 405: "method"}.get(error.status_code, "request")
        return fault_reply(Fault(error.status_code, field, f"{error.detail}.", error.headers))

    @app.exception_handler(sqlite3.Error)
    async def no_store(_: Request, error: sqlite3.Error) -> Response:
        log_failure("The event store cannot be used", error)
        problem = "The event store cannot be used now: try again in a second."
        return fault_reply(Fault(503, "", problem, {"Retry-After": "1"}))

    @app.exception_handler(Exception)
    async def failed(_: Request, __: Exception) -> Response:
        return fault_reply(Fault(500, "", "The service failed; its log has the details."))


async def _run_maintenance(service: Service) -> None:
    """Follow the other processes and, with `watch`, the model folder; delete old events."""
    last_expired = 0.0
    seen = service.folder_state()
    while True:
        try:
            await service.flush()
            await service.follow()
            now = service.folder_state()
            if service.settings.watch and now != seen:
                seen = now
                await service.reload()
            loop_time = asyncio.get_running_loop().time()
            if loop_time - last_expired > _HOUR:
                last_expired = loop_time
                await service.expire()
        except (Fault, InputError, OSError):
            pass  # `trouble` has the message, or the next round tries again
        except Exception as error:
            log_failure("Maintenance of the service failed", error)
        await asyncio.sleep(_TICK)


def _version() -> str:
    import recfusion

    return str(recfusion.__version__)
