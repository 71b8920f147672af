"""`recfusion serve`: a model folder as an HTTP service with a page on it."""

import logging
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pydantic import ValidationError
from typer import Argument, Option

from recfusion.cli.output import note, working
from recfusion.core.errors import InputError
from recfusion.data.load import load
from recfusion.experiments.train import train
from recfusion.inference.bundle_files import CONFIG
from recfusion.models.registry import QUICK_MODEL


def serve(
    folder: Annotated[Path | None, Argument(help="A model folder; without one, the embedded movies.")] = None,
    host: Annotated[
        str, Option(help="Address to listen on; others than the loopback need --api-key-env.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8000,
    workers: Annotated[int, Option(help="Processes that answer.", min=1, max=64)] = 1,
    histories: Annotated[Path | None, Option(help="A file with a row per user and item: users who are known.")] = None,
    events: Annotated[Path | None, Option(help="File of the events; beside the model folder unless named.")] = None,
    keep_events: Annotated[
        float | None, Option(metavar="DAYS", help="Delete events after so many days.", min=0)
    ] = None,
    also: Annotated[Path | None, Option(help="Another model folder, for a share of the users.")] = None,
    share: Annotated[float, Option(help="With --also: share of the users who get it.", min=0, max=1)] = 0.5,
    watch: Annotated[bool, Option("--watch", help="Load the folder again when it changes.")] = False,
    api_key_env: Annotated[
        str | None, Option(metavar="NAME", help="Variable of the environment with the key for reading.")
    ] = None,
    admin_key_env: Annotated[
        str | None, Option(metavar="NAME", help="Variable with the key for events, item columns and reload.")
    ] = None,
    host_name: Annotated[list[str] | None, Option(help="A name that requests may call the service by.")] = None,
    origin: Annotated[list[str] | None, Option(help="An origin elsewhere whose pages may ask.")] = None,
) -> None:
    """Serve a model over HTTP, with a page to try it on; without a folder, the embedded movies."""
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise InputError("Serving needs the extra 'serve': pip install 'recfusion[serve]'.")
    with ExitStack() as ending:
        if folder is None:
            made = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="recfusion-serve-")))
            folder, events = _movies(made), events or made / "events.sqlite"
        elif not (folder / CONFIG).is_file():
            raise InputError(f"Expected a model folder at '{folder}', found no {CONFIG} there: train one with --out.")
        given: dict[str, object] = {
            "folder": folder.absolute(),
            "events": (events or folder.absolute().with_name(f"{folder.absolute().name}.events.sqlite")).absolute(),
            "also": None if also is None else also.absolute(),
            "share": share,
            "histories": None if histories is None else histories.absolute(),
            "host": host,
            "port": port,
            "workers": workers,
            "api_key_env": api_key_env,
            "admin_key_env": admin_key_env,
            "hosts": tuple(host_name or ()),
            "origins": tuple(origin or ()),
            "watch": watch,
            "verbose": logging.getLogger("recfusion").isEnabledFor(logging.INFO),
            "keep_days": keep_events,
        }
        _serve(given)


def _serve(given: dict[str, object]) -> None:
    from recfusion.server.config import Settings
    from recfusion.server.keys import Keys
    from recfusion.server.start import free_port, run

    try:
        settings = Settings.model_validate(given)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise InputError(f"Expected another --{wrong['loc'][0]}: {wrong['msg'].lower()}.") from None
    token = Keys.of(settings).token()
    settings = settings.model_copy(update={"port": free_port(settings.host, settings.port)})
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    note(f"Serving {settings.folder.name}: http://{shown}:{settings.port}/{f'#token={token}' if token else ''}")
    note(f"Events are kept in {settings.events}; stop with Ctrl-C.")
    run(settings)


def _movies(folder: Path) -> Path:
    """Train the linear model on the embedded movies."""
    with working(f"Training {QUICK_MODEL} on the embedded movie ratings"):
        return train(QUICK_MODEL, load(), all_users=True, judge=True).save(folder / "movies")
