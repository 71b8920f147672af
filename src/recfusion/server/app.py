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
from starlette.responses import FileResponse, Response
from starlette.types import ASGIApp

from recfusion.core.errors import InputError
from recfusion.server import handlers as asking
from recfusion.server import schemas as requests
from recfusion.server.config import Settings
from recfusion.server.event_store import Event
from recfusion.server.guard import Guard
from recfusion.server.http_errors import Fault, fault_reply, log_failure, reply, validation_fault
from recfusion.server.keys import Keys
from recfusion.server.loaded_models import age, check_change
from recfusion.server.metrics import Metrics
from recfusion.server.model_info import describe
from recfusion.server.service import Service

log = logging.getLogger(__name__)
SETTINGS = "RECFUSION_SERVE"  # variable of the environment by which worker processes get theirs
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
_TICK = 0.25  # seconds between looks at the shared file and the model folder
_HOUR = 3600.0


def from_environment() -> ASGIApp:
    """Return the application of a worker process."""
    settings = Settings.model_validate_json(os.environ[SETTINGS])
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("recfusion").setLevel(logging.DEBUG if settings.verbose else logging.WARNING)
    return make_app(settings)


def make_app(settings: Settings) -> ASGIApp:
    """Return the application: it loads its models here, so that a process that listens is ready."""
    metrics = Metrics()
    service = Service(settings, metrics)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(_look_after(service))
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
    )
    _add_faults(app)
    _add_lists(app, service)
    _add_events(app, service)
    _add_watching(app, service)
    _add_page(app)
    routes = frozenset(getattr(route, "path", "") for route in app.routes)
    return Guard(app, settings=settings, keys=Keys.of(settings), metrics=metrics, routes=routes)


def _add_lists(app: FastAPI, service: Service) -> None:
    @app.post("/recommend", summary="The best items for a history or a known user")
    async def recommend(asked: requests.Recommend) -> Response:
        return reply(await asking.recommend(service, await service.current(), asked))

    @app.post("/recommend/batch", summary="Several lists at once")
    async def recommend_batch(asked: requests.RecommendBatch) -> Response:
        shelf = await service.current()
        answers = await asyncio.gather(
            *(asking.recommend(service, shelf, one, f"requests.{n}.") for n, one in enumerate(asked.requests))
        )
        return reply({"answers": answers})

    @app.post("/similar", summary="Items like an item")
    async def similar(asked: requests.Similar) -> Response:
        return reply(await asking.similar(service, await service.current(), asked))

    @app.post("/complete", summary="Items that complete a basket together")
    async def complete(asked: requests.Complete) -> Response:
        return reply(await asking.complete(service, await service.current(), asked))

    @app.post("/steps", summary="The reverse process on a history, step by step")
    async def steps(asked: requests.Steps) -> Response:
        return reply(await asking.steps(service, await service.current(), asked))

    @app.get("/items", summary="Items by their names, forgiving of typos; the most popular ones for an empty query")
    async def items(
        query: Annotated[str, Query(max_length=200)] = "", limit: Annotated[int, Query(ge=1, le=100)] = 10
    ) -> Response:
        main = (await service.current()).main
        found = await service.score(lambda: main.search.find(query, limit))
        return reply({"items": [main.facts.of(column) for column in found.tolist()]})

    @app.get("/popular", summary="The most popular items")
    async def popular(k: Annotated[int, Query(ge=1, le=requests.MOST_K)] = 10) -> Response:
        main = (await service.current()).main
        return reply({"items": [main.facts.of(column) for column in main.search.find("", k).tolist()]})

    @app.get("/model", summary="The models, the columns to filter by and the knobs")
    async def model() -> Response:
        shelf = await service.current()
        return reply(await service.score(lambda: describe(shelf)))


def _add_events(app: FastAPI, service: Service) -> None:
    @app.post("/events", summary="Record what somebody did with an item", status_code=201)
    async def events(asked: requests.EventBody) -> Response:
        return await _record(service, [asked])

    @app.post("/events/batch", summary="Record several events together", status_code=201)
    async def event_batch(asked: requests.EventBatch) -> Response:
        return await _record(service, asked.events)

    @app.post("/events/forget", summary="Delete all events of a user")
    async def forget(asked: requests.Forget) -> Response:
        found = await service.write(lambda store: store.forget(asked.user))
        await service.shrink()
        return reply({"deleted": found})

    @app.put("/items", summary="Change columns of items, such as stock and price, or describe new ones")
    async def change_items(asked: requests.ItemChanges) -> Response:
        shelf = await service.current()
        changed: dict[str, dict[str, Any]] = {}
        for number, one in enumerate(asked.items):
            for name, value in one.columns.items():
                try:
                    check_change(shelf.main.bundle, name, value)
                except InputError as error:
                    raise Fault(422, f"items.{number}.columns.{name}", str(error)) from None
            changed.setdefault(one.item, {}).update(one.columns)
        await service.write(lambda store: store.change(changed))
        ids, before = list(changed), shelf.main.bundle.columns_of(list(changed)) < 0
        after = (await service.current()).main.bundle.columns_of(ids) < 0
        return reply(asking.changed_items(shelf.main, ids, before.tolist(), after.tolist()))

    @app.post("/admin/reload", summary="Read the model folder again and exchange the models in one step")
    async def reload() -> Response:
        try:
            loaded, processes = await service.reload()
        except (InputError, OSError):
            told = f"The new model cannot be served, the old one goes on. {service.trouble}"
            raise Fault(409, "model", told) from None
        models = [{"name": one.label, "version": one.version} for one in service.shelf.every]
        return reply({"models": models, "processes": {"loaded": loaded, "of": processes}})


async def _record(service: Service, asked: list[requests.EventBody]) -> Response:
    found = [Event(one.user, one.item, one.kind, one.time, one.recommendation_id) for one in asked]
    await service.write(lambda store: store.add(found))
    for one in found:
        service.metrics.events.labels(one.kind).inc()
    return reply({"recorded": len(found)}, 201)


def _add_watching(app: FastAPI, service: Service) -> None:
    @app.get("/live", summary="Whether the process runs")
    async def live() -> Response:
        return reply({"live": True})

    @app.get("/ready", summary="Whether models are loaded, and what became of the last reload")
    async def ready() -> Response:
        models = [{"name": one.label, "version": one.version} for one in service.shelf.every]
        return reply({"ready": True, "models": models, "trouble": service.trouble})

    @app.get("/metrics", summary="Counters and latencies for Prometheus")
    async def metrics() -> Response:
        ages = {one.label: age(one) for one in service.shelf.every}
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


def _add_faults(app: FastAPI) -> None:
    @app.exception_handler(Fault)
    async def fault(_: Request, error: Fault) -> Response:
        return fault_reply(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return fault_reply(validation_fault(error.errors()))

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> Response:
        field = {404: "path", 405: "method"}.get(error.status_code, "request")
        return fault_reply(Fault(error.status_code, field, f"{error.detail}.", error.headers))

    @app.exception_handler(sqlite3.Error)
    async def unwritten(_: Request, error: sqlite3.Error) -> Response:
        log_failure("The file of events cannot be used", error)
        told = "The file of events cannot be used now: try again in a second."
        return fault_reply(Fault(503, "", told, {"Retry-After": "1"}))

    @app.exception_handler(Exception)
    async def failed(_: Request, __: Exception) -> Response:
        return fault_reply(Fault(500, "", "Something went wrong here; it is in the log."))


async def _look_after(service: Service) -> None:
    """Follow what other processes did, and the model folder where that was asked for; delete what is too old."""
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
            pass  # it is in `trouble`, or it is tried again
        except Exception as error:
            log_failure("Looking after the service failed", error)
        await asyncio.sleep(_TICK)


def _version() -> str:
    import recfusion

    return str(recfusion.__version__)
