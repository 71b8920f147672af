"""`recfusion serve`: serves a model folder over HTTP, with a page to try it on."""

import inspect
import logging
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic.fields import FieldInfo
from typer import Argument, Option

from recfusion.cli.output import note, working
from recfusion.cli.request_options import field_bounds
from recfusion.core.errors import InputError, validating
from recfusion.data.load import load
from recfusion.experiments.train import train
from recfusion.inference.bundle_files import CONFIG
from recfusion.models.registry import QUICK_MODEL
from recfusion.server.config import Settings

_OLD_OPTIONS = {"share": "also_share"}  # hidden, for one version


def serve(folder: Path | None, **options: Any) -> None:
    """Serve a model over HTTP, with a page to try it on; without a folder, the embedded movies."""
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise InputError("Serving needs the extra 'serve': pip install 'recfusion[serve]'.")
    for old, new in _OLD_OPTIONS.items():
        if (value := options.pop(old)) is not None:
            options[new] = value
    with ExitStack() as stack:
        events: Path | None = options.pop("events")
        if folder is None:
            temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recfusion-serve-")))
            folder, events = _train_example(temporary), events or temporary / "events.sqlite"
        elif not (folder / CONFIG).is_file():
            raise InputError(f"Expected a model folder at '{folder}', found no {CONFIG} there: train one with --out.")
        folder = folder.absolute()
        given = {name: value.absolute() if isinstance(value, Path) else value for name, value in options.items()}
        given |= {"folder": folder, "events": (events or folder.with_name(f"{folder.name}.events.sqlite")).absolute()}
        _start(given | {"verbose": logging.getLogger("recfusion").isEnabledFor(logging.INFO)})


def _option(name: str, field: FieldInfo, *, hidden: bool = False) -> inspect.Parameter:
    """Return the option of one field of the settings."""
    kind, default = cast(Any, field.annotation), field.default
    if hidden or field.is_required():
        kind, default = kind | None, None
    elif default == ():
        kind, default = list[str], []
    option = Option(f"--{name.replace('_', '-')}", help=field.description, hidden=hidden, **field_bounds(field))
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


_FIELDS = {name: field for name, field in Settings.model_fields.items() if field.description}
_PARAMETERS = [
    inspect.Parameter(
        "folder",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[Path | None, Argument(help="A model folder; without one, the embedded movies.")],
    ),
    *(_option(name, field) for name, field in _FIELDS.items()),
    *(_option(old, _FIELDS[new], hidden=True) for old, new in _OLD_OPTIONS.items()),
]
serve.__signature__ = inspect.Signature(_PARAMETERS)  # type: ignore[attr-defined]
serve.__annotations__ = {parameter.name: parameter.annotation for parameter in _PARAMETERS}


def _start(given: dict[str, Any]) -> None:
    from recfusion.server.keys import Keys
    from recfusion.server.start import free_port, run

    with validating("valid options"):
        settings = Settings.model_validate(given)
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
