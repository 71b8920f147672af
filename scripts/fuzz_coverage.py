"""Fuzz our own parsers, guided by coverage: `python scripts/fuzz_coverage.py where --seconds 3600`.

Needs atheris, which exists for Linux alone: `pip install -r requirements/fuzz.txt`.
Inputs that reach new code are added to `--corpus`; `tests/corpus` keeps a few of them, which the tests parse. An input
that raises anything but an `InputError` ends the run and is kept beside the corpus.
"""

import argparse
import asyncio
import importlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
CORPUS = Path(__file__).parents[1] / "tests" / "corpus"
LONGEST = 2000  # bytes of an input
_MODULES = (
    *("core.errors", "core.files", "data.load", "data.options", "data.reading.item_file", "experiments.result"),
    *("experiments.experiment_file", "inference.bundle", "inference.bundle_files", "inference.request"),
    *("nightly.config", "server.keys", "server.guard", "server.http_protocol", "server.schemas", "server.start"),
)


@cache
def own(name: str) -> Any:
    """Return a module of the package; it is imported after atheris has prepared to instrument it."""
    return importlib.import_module(f"recfusion.{name}")


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="coverage-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))


def _file(name: str, content: bytes) -> Path:
    path = _folder() / name
    path.write_bytes(content)
    return path


def _every() -> Any:
    return own("data.options").Preparation(min_rating=None, min_items_per_user=0, min_users_per_item=0)


def lines(content: bytes) -> None:
    """Read a text of interactions; the first byte chooses the suffix."""
    suffix = (".csv", ".tsv", ".dat", ".jsonl")[content[0] % 4 if content else 0]
    own("data.load").load(_file(f"case{suffix}", content[1:]), _every(), max_bad_share=1.0)


def dates(content: bytes) -> None:
    """Read a column of times, one per line."""
    cells = content.replace(b",", b".").split(b"\n")
    rows = b"".join(b"u%d,i%d,%s\n" % (number % 3, number % 5, cell) for number, cell in enumerate(cells))
    own("data.load").load(_file("dates.csv", b"user,item,time\n" + rows), _every(), max_bad_share=1.0)


def headers(content: bytes) -> None:
    """Read a table of items with any header."""
    first, _, rest = content.partition(b"\n")
    own("data.reading.item_file").read_items(_file("items.csv", first + b"\n" + (rest or b"1,2,3\n4,5,6\n")), None)


@cache
def _items() -> Any:
    import polars as pl

    columns = {
        "item": ["a", "b", "c"],
        "price": [1.5, None, 3.0],
        "kind": ["Tea|Cup", None, "x"],
        "new": [True, False, None],
    }
    return pl.DataFrame({**columns, "stock": [0, 4, None]})


def where(content: bytes) -> None:
    """Apply a filter condition."""
    own("inference.bundle").matching(_items(), content.decode("utf-8", "replace"))


def experiments(content: bytes) -> None:
    """Read an experiment."""
    own("experiments.experiment_file").read_experiment(_file("case.toml", content))


def results(content: bytes) -> None:
    """Read a store of one result."""
    own("experiments.result").read_results(_file("case.jsonl", content))


def histories(content: bytes) -> None:
    """Parse a history of a request."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return
    own("inference.request").parse_history(document)


def configurations(content: bytes) -> None:
    """Read the configuration of a model folder."""
    own("inference.bundle_files").read_config(_file("config.json", content).parent)


def keys(content: bytes) -> None:
    """Read a file of keys."""
    own("server.keys").read_key_file(_file("keys.toml", content))


def shops(content: bytes) -> None:
    """Read the file of a shop."""
    own("nightly.config").read_shop(_file("shop.toml", content))


class _Connection(asyncio.Transport):
    """The side of a connection on which a service writes; the client never reads slowly."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.closed = b"", False

    def write(self, data: Any) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def pause_reading(self) -> None:
        """The input is short."""

    resume_reading = write_eof = pause_reading

    def can_write_eof(self) -> bool:
        return True


@cache
def _service() -> tuple[Any, Any, asyncio.AbstractEventLoop]:
    """Return the configuration of a service whose only route echoes a request, the state and a loop."""
    from fastapi import FastAPI
    from uvicorn import Config
    from uvicorn.server import ServerState

    app = FastAPI(exception_handlers=dict.fromkeys(own("server.http_errors").ERRORS, _refuse))
    request = own("server.schemas").Recommend

    @app.post("/recommend")
    async def recommend(body: request) -> Any:  # type: ignore[valid-type]
        return body

    settings = own("server.config").Settings(folder=_folder(), events=_folder() / "events.sqlite")
    made = {"keys": own("server.keys").Keys.of(settings), "metrics": own("server.metrics").Metrics()}
    guard = own("server.guard").Guard(app, settings=settings, routes=frozenset({"/recommend"}), **made)
    config = Config(guard, **own("server.start").options(settings))
    config.load()
    return config, ServerState(), asyncio.new_event_loop()


async def _refuse(_: Any, error: Exception) -> Any:
    errors = own("server.http_errors")
    return errors.fault_reply(errors.to_fault(error))


def http(content: bytes) -> None:
    """Receive the bytes of a connection, in pieces of the size of the first byte; no input may be a bug."""
    config, state, loop = _service()

    async def receive() -> bytes:
        protocol = own("server.http_protocol").LimitedProtocol(config, state, {}, loop)
        connection, size = _Connection(), 1 + content[0] if content else 1
        protocol.connection_made(connection)
        for start in range(1, len(content), size):
            if not connection.closed:
                protocol.data_received(content[start : start + size])
        for _ in range(50):
            await asyncio.sleep(0)
        protocol.connection_lost(None)
        while state.tasks:
            await asyncio.wait(state.tasks)
        return connection.sent

    sent = loop.run_until_complete(receive())
    assert not sent or sent.startswith(b"HTTP/1.1 "), sent[:100]
    assert b"HTTP/1.1 5" not in sent, sent[:400]


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    function.__name__: function
    for function in (lines, dates, headers, where, experiments, results, histories, configurations, keys, shops, http)
}


def parse(name: str, content: bytes) -> bool:
    """Run a target on an input; return whether it was accepted. Anything but an `InputError` is raised."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            TARGETS[name](content)
        except own("core.errors").InputError as error:
            text = str(error)
            if not text.endswith(".") or "\n" in text:
                raise AssertionError(f"not one sentence: {text!r}") from None
            return False
    return True


def _fuzz(name: str, options: list[str]) -> None:
    """Fuzz one target in this process, until libFuzzer ends it."""
    import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

    with atheris.instrument_imports(include=["recfusion"]):
        for module in _MODULES:
            own(module)

    def one(content: bytes) -> None:
        parse(name, content)

    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("target", nargs="*", help=f"default: all of {', '.join(TARGETS)}")
    options.add_argument("--seconds", type=int, default=60, help="time for each target")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--corpus", type=Path, default=Path("fuzz-corpus"), help="folder for inputs of new coverage")
    options.add_argument("--inside", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.inside is not None:
        _fuzz(chosen.target[0], chosen.inside)
        return 0
    failed = []
    for name in chosen.target or TARGETS:
        folder = chosen.corpus / name
        folder.mkdir(parents=True, exist_ok=True)
        words = [f"-max_total_time={chosen.seconds}", f"-max_len={LONGEST}", f"-seed={chosen.seed}", "-timeout=60"]
        words += [
            f"-artifact_prefix={chosen.corpus}/{name}-",
            "-rss_limit_mb=4096",
            "-verbosity=0",
            "-print_final_stats=1",
        ]
        ended = subprocess.run(
            [sys.executable, __file__, name, "--inside", *words, str(folder), str(CORPUS / name)],
            capture_output=True,
            text=True,
            check=False,
        )
        runs = [line.split()[-1] for line in ended.stderr.splitlines() if line.startswith("stat::number_of_executed")]
        print(f"{name:15} {runs[0] if runs else '?':>10} cases, exit code {ended.returncode}")
        if ended.returncode:
            failed.append(name)
            print("\n".join(ended.stderr.splitlines()[-30:]))
    for left in Path(tempfile.gettempdir()).glob("coverage-*"):
        shutil.rmtree(left, ignore_errors=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
