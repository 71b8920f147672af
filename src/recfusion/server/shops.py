"""Several shops in one service, each under /shops/NAME/ with its own models, events, keys and counters."""

from collections.abc import Mapping
from contextlib import AsyncExitStack

from starlette.types import Receive, Scope, Send

from recfusion.server.config import Settings
from recfusion.server.guard import OPEN, Guard
from recfusion.server.http_errors import Fault, fault_reply, reply


class Shops:
    """An ASGI application that passes each request to the shop in its path; nothing is shared between shops."""

    def __init__(self, settings: Settings, shops: Mapping[str, Guard]) -> None:
        self.settings, self._shops = settings, shops

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            path = str(scope["path"])
            name, slash, route = path.removeprefix("/shops/").partition("/")
            if path.startswith("/shops/") and slash and name in self._shops:
                await self._shops[name]({**scope, "path": f"/{route}"}, receive, send)
            elif path in OPEN:
                await reply({path[1:]: True})(scope, receive, send)
            else:
                fault = Fault(404, "path", "Expected a path /shops/NAME/ROUTE with the name of a shop and a route.")
                await fault_reply(fault)(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Start all shops, and end them with the service."""
        await receive()
        async with AsyncExitStack() as stack:
            for shop in self._shops.values():
                await stack.enter_async_context(shop.app.router.lifespan_context(shop.app))
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
