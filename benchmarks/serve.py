"""The service on loopback: latencies beside an empty route of the same stack, a steady load, and reloads under load.

    python benchmarks/serve.py my-model --out benchmarks/serve.json

`alone`: one connection, one request after another, for `/live` (which does nothing) and `/recommend` (ten items for
histories of 30). The bar is three times the empty route plus the library path, measured in this run. `steady`: requests
at fixed moments, whether earlier ones are answered or not. `reloads`: requests while the model is loaded again ten
times.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from one_user import library

import recfusion as rf
from recfusion.core.files import write_json

LENGTH = 30
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def request(port: int, method: str, path: str, document: Any = None) -> bytes:
    """Return a request as it goes over the wire."""
    body = b"" if document is None else json.dumps(document).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def asked(connection: Connection, data: bytes) -> int:
    """Send a request and return the status of its answer."""
    reader, writer = connection
    writer.write(data)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head[9:12])


async def alone(port: int, requests: Sequence[bytes]) -> list[float]:
    """Return the milliseconds of each request, one after another."""
    connection = await asyncio.open_connection("127.0.0.1", port)
    found = []
    for data in requests:
        began = time.perf_counter()
        assert await asked(connection, data) == 200
        found.append(1000 * (time.perf_counter() - began))
    connection[1].close()
    return found


async def steady(port: int, requests: Sequence[bytes], rate: float, seconds: float) -> tuple[list[float], int]:
    """Return the milliseconds from the moment each request was due, and how many failed."""
    idle: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
    for _ in range(64):
        idle.put_nowait(await asyncio.open_connection("127.0.0.1", port))
    found: list[float] = []
    failed = 0
    start = time.perf_counter() + 0.2

    async def one(due: float, data: bytes) -> None:
        nonlocal failed
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        connection = await idle.get()
        if connection[0].at_eof():  # the service closes what has been idle for long
            connection = await asyncio.open_connection("127.0.0.1", port)
        failed += await asked(connection, data) != 200
        found.append(1000 * (time.perf_counter() - due))
        idle.put_nowait(connection)

    total = int(rate * seconds)
    await asyncio.gather(*(one(start + n / rate, requests[n % len(requests)]) for n in range(total)))
    return found, failed


async def reloads(port: int, requests: Sequence[bytes], total: int, times: int) -> dict[str, int]:
    """Return how many of `total` requests failed while the model was loaded again."""
    left = iter(range(total))
    failed = done = 0

    async def worker() -> None:
        nonlocal failed, done
        connection = await asyncio.open_connection("127.0.0.1", port)
        for n in left:
            failed += await asked(connection, requests[n % len(requests)]) != 200
            done += 1

    async def reload() -> int:
        loaded, again = 0, request(port, "POST", "/admin/reload", {})
        connection = await asyncio.open_connection("127.0.0.1", port)
        for number in range(times):
            while done < total * number // times:
                await asyncio.sleep(0.005)
            loaded += await asked(connection, again) == 200
        return loaded

    workers = [asyncio.create_task(worker()) for _ in range(4)]
    loaded = await reload()
    await asyncio.gather(*workers)
    return {"requests": done, "failed": failed, "reloads": loaded}


def spread(milliseconds: Sequence[float]) -> dict[str, float]:
    """Return the main quantiles."""
    return {f"p{q}, ms": float(np.quantile(milliseconds, q / 100)) for q in (50, 99)}


@contextmanager
def served(model: Path) -> Iterator[int]:
    """Serve a model folder in its own process with one thread; yield its port when it is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        start = "from recfusion.cli.main import main; main()"
        options = ["serve", str(model), "--port", str(port), "--events", f"{folder}/events.sqlite"]
        server = subprocess.Popen([sys.executable, "-c", start, *options], env=os.environ | {"OMP_NUM_THREADS": "1"})
        try:
            while not answers(port) and server.poll() is None:
                time.sleep(0.1)
            yield port
        finally:
            server.terminate()
            server.wait(60)


def answers(port: int) -> bool:
    """Return whether a service is there."""
    try:
        asyncio.run(alone(port, [request(port, "GET", "/live")]))
    except OSError:
        return False
    return True


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--requests", type=int, default=10_000, help="during the reloads")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    bundle = rf.Bundle.load(arguments.model)
    rng = np.random.default_rng(0)
    weights = bundle.counts / bundle.counts.sum()
    names = bundle.items["item"].cast(str).to_list()
    ids = [[names[n] for n in rng.choice(len(names), LENGTH, replace=False, p=weights)] for _ in range(500)]
    with served(arguments.model) as port:
        found = measured(port, ids, bundle, arguments)
    for name, part in found.items():
        print(name, part)
    if arguments.out:
        write_json(arguments.out, found)


def measured(port: int, ids: list[list[str]], bundle: rf.Bundle, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return all figures of a running service."""
    wanted = [request(port, "POST", "/recommend", {"history": own}) for own in ids]
    empty = [request(port, "GET", "/live")] * len(wanted)
    asyncio.run(alone(port, wanted[:50]))
    path, own = library(bundle), []
    for one in ids:
        began = time.perf_counter()
        path(one)
        own.append(1000 * (time.perf_counter() - began))
    nothing, lists = asyncio.run(alone(port, empty)), asyncio.run(alone(port, wanted))
    answered, failed = asyncio.run(steady(port, wanted, arguments.rate, arguments.seconds))
    bars = {key: 3 * spread(nothing)[key] + spread(own)[key] for key in spread(nothing)}
    return {
        "model": bundle.name,
        "items": len(bundle.items),
        "alone": {"empty": spread(nothing), "library": spread(own), "lists": spread(lists), "bar": bars},
        "steady": {"rate": arguments.rate, "seconds": arguments.seconds, "failed": failed, **spread(answered)},
        "reloads": asyncio.run(reloads(port, wanted, arguments.requests, 10)),
    }


if __name__ == "__main__":
    main()
