"""The commands that faults.py tests, on data of 60 users; they always write the same bytes."""

import asyncio
import io
import os
import random
import sqlite3
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from functools import partial
from hashlib import md5
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

ARCHIVE = "ml-100k.zip"


@dataclass(frozen=True)
class Case:
    """A command and the files that it writes."""

    name: str
    command: str
    outputs: tuple[str, ...]  # files and folders, replaced as a whole; lines are appended to .jsonl
    before: str = ""  # a command that runs first, so that there is something to replace
    again: str = ""  # further options of the run after an interrupted one
    keeps: tuple[str, ...] = ()  # files that an interrupted run may leave for the next one
    exchanges: bool = True  # whether the system can swap two folders in one step
    renews: tuple[str, ...] = ()  # outputs that a second complete run changes


_DATA = "--data data.csv --tune-trials 0"
_COMPARE = f"compare {_DATA} --models popularity,ease --workers 0 --out out/results.jsonl --page out/page.html"
_EPOCHS = "train multvae --data data.csv --set max_epochs=2 --set width=8 --set latent=4 --out out/model"
_TUNE = "tune ease --data data.csv --out out --trials"
_LISTS = "recommend model --histories data.csv --out out/lists"
_JUDGED = f"train ease {_DATA} --all-users --evaluate --keep-if-better old --out model"
_COMPARED, _TUNED = ("out/results.jsonl", "out/page.html"), ("out/trials.jsonl", "out/best.json", "out/model")
_DESCRIBED = f"train thinning-features {_DATA} --items items.csv --signals features --out described"
INPUTS = (
    f"compare {_DATA} --models popularity,ease --workers 0 --out results.jsonl",
    f"train ease {_DATA} --out model",
    f"train popularity {_DATA} --out old",
    _DESCRIBED,
    f"train thinning-linear {_DATA} --all-users --updatable --out learned",
)
_NIGHT = ("shop", "reports/nights.jsonl", "reports/latest.json", "reports/latest.html")
_UNFINISHED = ("reports/.lock", "reports/pending.json")
# Not commands: a service that records events and reloads, and one that learns from them.
RECORD, LEARN, EVENTS = "record", "learn", "events.sqlite"
_CLAIM = (".learned.update",)
_OVER = Case("train over", f"train ease {_DATA} --out model", ("model",), f"train popularity {_DATA} --out model")
CASES = (
    Case("train", f"train ease {_DATA} --out out/model", ("out/model",)),
    _OVER,
    replace(_OVER, name="train in 2 renames", exchanges=False),
    Case(
        *("train if better", _JUDGED, ("model", "model.previous"), f"train popularity {_DATA} --out model.previous"),
        renews=("model.previous",),
    ),
    Case("train epochs", _EPOCHS, ("out/model",), again="--resume", keeps=("out/model.checkpoint",)),
    Case("compare", f"{_COMPARE} --splits 2", _COMPARED),
    Case("compare over", f"{_COMPARE} --splits 2", _COMPARED, before=_COMPARE),
    Case("run", "run experiment.toml --workers 0", ("results/tiny.jsonl",)),
    Case("tune", f"{_TUNE} 2", _TUNED),
    Case("tune over", f"{_TUNE} 3", _TUNED, before=f"{_TUNE} 1"),
    Case("fetch", "data fetch ml-100k", (f"cache/{ARCHIVE}",), keeps=(f"cache/{ARCHIVE}.part",)),
    Case("recommend csv", f"{_LISTS}.csv", ("out/lists.csv",)),
    Case("recommend why", f"{_LISTS}.csv --why 2 --deny i03 --diversity .5", ("out/lists.csv",)),
    Case("recommend jsonl", f"{_LISTS}.jsonl", ("out/lists.jsonl",)),
    Case("recommend parquet", f"{_LISTS}.parquet", ("out/lists.parquet",), before=f"{_LISTS}.parquet -k 1"),
    Case(
        "report html", "report results.jsonl", ("results.html",), before="report results.jsonl --reference popularity"
    ),
    Case("items add", "items add described --items new.csv --out out/model", ("out/model",)),
    Case("items add over", "items add described --items new.csv --out model", ("model",)),
    Case("nightly", "nightly shop.toml", _NIGHT, keeps=_UNFINISHED),
    Case("nightly over", "nightly shop.toml", ("shop.previous", *_NIGHT), "nightly first.toml", keeps=_UNFINISHED),
    Case("serve", RECORD, (EVENTS,)),
    Case("serve learning", LEARN, ("learned", EVENTS), keeps=_CLAIM, renews=("learned",)),
    Case(
        *("update", "update learned --rows today.csv --forget gone.txt --out out/model", ("out/model",)),
        keeps=("out/.model.update",),
    ),
    Case(
        *("update over", "update learned --rows today.csv --out learned", ("learned",)),
        keeps=_CLAIM,
        renews=("learned",),
    ),
    Case("report csv", "report results.jsonl --out out/r.csv", ("out/r.csv",)),
    Case("report png", "report results.jsonl --out out/r.png", ("out/r.png",)),
)


def write_inputs(folder: Path) -> None:
    """Write interactions of three groups of users, item tables and an experiment file."""
    rng = random.Random(0)
    rows = ["user,item"]
    for user in range(60):
        own = range(8 * (user % 3), 8 * (user % 3) + 8)
        rows += [f"u{user:02d},i{item:02d}" for item in sorted({*rng.sample(own, 6), *rng.sample(range(24), 2)})]
    (folder / "data.csv").write_text("\n".join(rows) + "\n")
    kinds = ("Tea", "Cups", "Books")
    described = [f"i{item:02d},{kinds[item // 8]},{item % 4}" for item in range(24)]
    (folder / "items.csv").write_text("\n".join(["item,kind,price", *described]) + "\n")
    (folder / "new.csv").write_text("item,kind,price\nn1,Tea,2\nn2,Cups,9\n")
    (folder / "today.csv").write_text("\n".join(["user,item", *(f"ann,i{item:02d}" for item in range(6)), "u01,i20"]))
    (folder / "gone.txt").write_text("u05\nu06\n")
    models = "[models.popularity]\n[models.ease]\ntune_trials = 0\n"
    for name, model in (("first", "popularity"), ("shop", "ease")):
        settings = "[settings]\ntune_trials = 0\n" if model == "ease" else ""
        files = 'folder = "shop"\norders = "data.csv"\nproducts = "items.csv"\n'
        (folder / f"{name}.toml").write_text(f'{files}model = "{model}"\n{settings}')
    (folder / "experiment.toml").write_text(f'name = "tiny"\n[data]\ndata = "data.csv"\n[run]\nseeds = 2\n{models}')


@dataclass(frozen=True)
class Offer:
    """An archive that a separate process serves over HTTP."""

    url: str
    md5: str
    process: int


def serve() -> Offer:
    """Start a server of an archive that is downloaded in several pieces."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("ml-100k/u.data", random.Random(0).randbytes(600_000))
    content = file.getvalue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            start = int(self.headers.get("Range", "bytes=0-")[6:-1])
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            with suppress(OSError):  # a client that was killed
                self.wfile.write(content[start:])

        def log_message(self, *_: object) -> None:
            """Do not log."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.timeout, parent = 5, os.getpid()
    process = os.fork()
    if not process:
        while os.getppid() == parent:
            server.handle_request()
        os._exit(0)
    server.server_close()
    return Offer(f"http://127.0.0.1:{server.server_port}/{ARCHIVE}", md5(content).hexdigest(), process)


def record() -> None:
    """Record three events as a service does, print each acknowledgement, and reload the model."""
    from recfusion.server.config import Settings
    from recfusion.server.event_store import Event, Store
    from recfusion.server.metrics import Metrics
    from recfusion.server.service import Service

    async def serve_some(service: Service) -> None:
        have = service.reading.user_items("ann").have
        for item in ("i00", "i01", "i02"):
            if item not in have:
                await service.write(partial(Store.add, events=[Event("ann", item, time=0.0)]))
                print(f"acknowledged {item}", flush=True)
        await service.reload()
        service.close()

    asyncio.run(serve_some(Service(Settings(folder=Path("model"), events=Path(EVENTS)), Metrics())))


def learn() -> None:
    """Record an event of a training user, print the acknowledgement, and update the model by it as a service does."""
    from recfusion.core.files import file_digest
    from recfusion.inference.bundle import Bundle
    from recfusion.inference.bundle_files import CONFIG
    from recfusion.server import learning
    from recfusion.server.event_store import Event, Store

    with closing(Store(Path(EVENTS))) as store:
        if "i20" not in store.user_items("u01").have:
            with store.writing():
                store.add([Event("u01", "i20", time=0.0)])
            print("acknowledged i20", flush=True)
    folder = Path("learned")
    learning.learn(folder, Bundle.load(folder), file_digest(folder / CONFIG), Path(EVENTS))


def served(run: Callable[[], None]) -> int:
    """Return 0, or 2 after an error that the HTTP service answers, like a command."""
    from recfusion.core.errors import InputError
    from recfusion.server.http_errors import Fault

    try:
        run()
    except (Fault, InputError, OSError, sqlite3.Error) as error:
        print(f"Error: {str(error).rstrip('.')}.")
        sys.stdout.flush()
        return 2
    return 0


class _Still(datetime):
    """A clock that always shows the same time."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "_Still":
        return cls(2026, 1, 1, tzinfo=tz)


def program(arguments: str, folder: Path, offer: Offer, log: Path, *, exchanges: bool = True) -> Callable[[], int]:
    """Return a function that runs a command and returns its exit code. It changes the state of its process.

    Output is written to the file `log`. Clocks are replaced, so that results contain no times.
    """

    def run() -> int:
        from recfusion.cli import tune
        from recfusion.cli.main import main
        from recfusion.core import files
        from recfusion.data import catalog
        from recfusion.experiments import fit as judge
        from recfusion.experiments.tuning import engine as local
        from recfusion.experiments.tuning import trials_file
        from recfusion.inference import update
        from recfusion.nightly import run as night

        printed = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        os.chdir(folder)
        os.environ["RECFUSION_CACHE"] = "cache"
        os.environ.pop("RECFUSION_DATA", None)
        offered = replace(catalog.CATALOG["ml-100k"], md5=offer.md5)
        vars(catalog)["_PUBLISHER"] = offer.url.removesuffix(offered.archive)
        vars(catalog)["CATALOG"] = {**catalog.CATALOG, "ml-100k": offered}
        for module in (judge, trials_file, night, update):
            vars(module)["datetime"] = _Still
        vars(time)["perf_counter"] = vars(time)["process_time"] = lambda: 0.0
        if not exchanges:
            vars(files)["_exchanged"] = lambda *_: False
        if arguments.strip() in (RECORD, LEARN):
            return served(record if arguments.strip() == RECORD else learn)
        engine = local.local_engine
        vars(tune)["local_engine"] = lambda *_: engine(0)  # run trials in this process, as they write nothing
        sys.argv = ["recfusion", *arguments.split()]
        try:
            main()
        except SystemExit as left:
            sys.stdout.flush()
            return left.code if isinstance(left.code, int) else 1
        return 0

    return run
