"""`recfusion serve`: serves a model folder over HTTP, with a page to try it on."""

import logging
import os
import secrets
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from recfusion.cli.loading import loading, without_collection
from recfusion.cli.output import note, working
from recfusion.cli.request_options import request_options
from recfusion.core.errors import InputError
from recfusion.core.extras import require
from recfusion.data.load import load
from recfusion.experiments.train import train
from recfusion.inference.bundle_files import CONFIG
from recfusion.models.registry import QUICK_MODEL
from recfusion.nightly.config import read_shop
from recfusion.server.config import Options, Settings, in_folder


@request_options
def serve(
    options: Options,
    folder: Annotated[Path | None, Argument(help="A model folder; without one, the embedded movies.")] = None,
) -> None:
    """Serve a model over HTTP, with a page to try it on; without a folder, the embedded movies."""
    for package in ("fastapi", "uvicorn"):
        require(package, "Serving")
    given = {name: in_folder(value, Path.cwd()) for name, value in options}
    given |= {"verbose": logging.getLogger("recfusion").isEnabledFor(logging.INFO)}
    if options.config:
        if folder is not None:
            raise InputError("Expected a folder or --config, got both: the file names the folder.", "config")
        _start(_shops(options, given))
        return
    with ExitStack() as stack:
        events = options.events
        if folder is None:
            temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recfusion-serve-")))
            folder, events = _train_example(temporary), events or temporary / "events.sqlite"
        _start(_settings(given, folder, events))


def _settings(given: dict[str, Any], folder: Path, events: Path | None) -> Settings:
    if not (folder / CONFIG).is_file():
        raise InputError(f"Expected a model folder at '{folder}', found no {CONFIG} there: train one with --out.")
    folder = folder.absolute()
    events = (events or folder.with_name(f"{folder.name}.events.sqlite")).absolute()
    return Settings.model_validate(given | {"folder": folder, "events": events})


def _shops(options: Options, given: dict[str, Any]) -> Settings:
    """Return the settings of a service of one shop or several; options of the command line come before the files'."""
    chosen = {name: value for name, value in given.items() if value != getattr(Options(), name, None)}
    found = dict[str, Settings]()
    for path in options.config:
        shop = read_shop(path)
        own = given | {name: getattr(shop.serve, name) for name in shop.serve.model_fields_set} | chosen
        events = options.events or (None if shop.events is None else Path(shop.events))
        name = shop.name or path.stem
        if name in found:
            raise InputError(f"Expected shops with different names, got {name} twice: set the key name.", "config")
        more = {"placements": shop.placements, "shop": name if len(options.config) > 1 else ""}
        found[name] = _settings(own | more, Path(shop.folder), events)
    if len(found) > 1:
        _check_separate(found, chosen)
    first = next(iter(found.values()))
    return first if len(found) == 1 else first.model_copy(update={"shops": tuple(found.values())})


def _check_separate(shops: Mapping[str, Settings], chosen: Mapping[str, Any]) -> None:
    """Raise if several shops would share a folder, events or keys, or if one has no keys."""
    for option in ("events", "histories", "also", "models", "api_key_env", "admin_key_env", "key_file"):
        if option in chosen:
            flag = f"--{option.replace('_', '-')}"
            raise InputError(f"{flag} would belong to all shops: set it in [serve] of their files.", option)
    for name, shop in shops.items():
        if shop.api_key_env is None and shop.key_file is None:
            raise InputError(f"Expected keys of the shop {name}: set key_file in [serve] of its file.", "key_file")
    for field in ("folder", "events", "key_file", "api_key_env", "admin_key_env"):
        used = [str(getattr(one, field)) for one in shops.values() if getattr(one, field) is not None]
        if len({os.path.realpath(value) for value in used}) < len(used):
            raise InputError(f"Expected shops with their own {field}, and two of them have the same.", field)


def _start(settings: Settings) -> None:
    with loading("the service"), without_collection():
        from recfusion.server.keys import Keys
        from recfusion.server.loaded_models import load_served
        from recfusion.server.start import check_tls, free_port, run

    shops = settings.shops or (settings,)
    if settings.workers > 1:  # a worker process that cannot load them would be started again and again
        with loading("the models"):
            for shop in shops:
                load_served(shop)
    shops = tuple(shop.model_copy(update={"page_secret": secrets.token_hex(32)}) for shop in shops)
    tokens = [Keys.of(shop).token() for shop in shops]
    check_tls(settings)
    port = free_port(settings.host, settings.port)
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    for shop, token in zip(shops, tokens, strict=True):
        address = f"{'https' if settings.tls_certificate else 'http'}://{shown}:{port}/"
        address += f"shops/{shop.shop}/" if shop.shop else ""
        # A log would keep the token for anybody who reads logs.
        if token and sys.stderr.isatty():
            address += f"#token={token}"
        elif token:
            address += " (the page opens with #token=KEY and a key for reading)"
        note(f"Serving {shop.folder.name}: {address}")
        note(f"Events are stored in {shop.events}; stop with Ctrl-C.")
    alone = not settings.shops
    given = shops[0].model_copy(update={"port": port} if alone else {"port": port, "shops": shops})
    run(given, while_loading=loading("the models"))


def _train_example(folder: Path) -> Path:
    """Train a model on the embedded movies and return its folder."""
    with working(f"Training {QUICK_MODEL} on the embedded movie ratings"):
        return train(QUICK_MODEL, load(), all_users=True, judge=True, costs=True).save(folder / "movies")
