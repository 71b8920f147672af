"""`recfusion serve`: serves a model folder over HTTP, with a page to try it on."""

import logging
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from typer import Argument

from recfusion.cli.output import note, working
from recfusion.cli.request_options import request_options
from recfusion.core.errors import InputError
from recfusion.data.load import load
from recfusion.experiments.train import train
from recfusion.inference.bundle_files import CONFIG
from recfusion.models.registry import QUICK_MODEL
from recfusion.server.config import Options, Settings


@request_options
def serve(
    options: Options,
    folder: Annotated[Path | None, Argument(help="A model folder; without one, the embedded movies.")] = None,
) -> None:
    """Serve a model over HTTP, with a page to try it on; without a folder, the embedded movies."""
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise InputError("Serving needs the extra 'serve': pip install 'recfusion[serve]'.")
    with ExitStack() as stack:
        events = options.events
        if folder is None:
            temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recfusion-serve-")))
            folder, events = _train_example(temporary), events or temporary / "events.sqlite"
        elif not (folder / CONFIG).is_file():
            raise InputError(f"Expected a model folder at '{folder}', found no {CONFIG} there: train one with --out.")
        folder = folder.absolute()
        given = {name: value.absolute() if isinstance(value, Path) else value for name, value in options}
        given |= {"folder": folder, "events": (events or folder.with_name(f"{folder.name}.events.sqlite")).absolute()}
        given |= {"verbose": logging.getLogger("recfusion").isEnabledFor(logging.INFO)}
        _start(Settings.model_validate(given))


def _start(settings: Settings) -> None:
    from recfusion.server.keys import Keys
    from recfusion.server.start import free_port, run

    token = Keys.of(settings).token()
    settings = settings.model_copy(update={"port": free_port(settings.host, settings.port)})
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    note(f"Serving {settings.folder.name}: http://{shown}:{settings.port}/{f'#token={token}' if token else ''}")
    note(f"Events are stored in {settings.events}; stop with Ctrl-C.")
    run(settings)


def _train_example(folder: Path) -> Path:
    """Train a model on the embedded movies and return its folder."""
    with working(f"Training {QUICK_MODEL} on the embedded movie ratings"):
        return train(QUICK_MODEL, load(), all_users=True, judge=True).save(folder / "movies")
