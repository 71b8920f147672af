"""One night of a shop: forget, read, check, compare recipes, fit the better one, replace the folder, report.

A run may be killed at any time. Before the model folder is replaced, the report is written as PENDING. If the next run
finds it and the folder has been replaced, it completes that report; if not, it begins anew.
"""

import hashlib
import json
import os
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import polars as pl

from recfusion.core.errors import InputError
from recfusion.core.files import check_replaceable, check_writable_file, file_digest, lock_file, read_json, write_json
from recfusion.data.interactions import RawData
from recfusion.experiments.preset import shop_choices
from recfusion.experiments.recipes import Outcome, Recipe, train_better
from recfusion.inference.bundle import Bundle
from recfusion.inference.bundle_files import CONFIG
from recfusion.inference.new_items import placement_notes
from recfusion.nightly.config import PLACES, SERVED, Shop
from recfusion.nightly.inputs import Inputs, database_rows, read_inputs
from recfusion.nightly.report import Counts, Night, parse_night, read_nights, write_night
from recfusion.server.event_reports import purchases_and_returns
from recfusion.server.event_store import Store
from recfusion.training.epoch import OnEpoch

PENDING = "pending.json"
PHASES = ("forget", "read", "check", "train", "record", "replace", "notify", "report")
OnPhase = Callable[[str], None]
_RELOAD_SECONDS = 120


def run_night(
    shop: Shop,
    *,
    dry_run: bool = False,
    accept_drop: bool = False,
    on_phase: OnPhase = lambda _: None,
    on_epoch: OnEpoch | None = None,
) -> tuple[Night, bool]:
    """Run a night and return its report, and whether it is that of an earlier run with the same inputs.

    A dry run reads, compares and fits, but writes nothing.
    """
    reports, folder = Path(shop.reports), Path(shop.folder)
    for path in (folder, _previous(shop)):
        check_replaceable(path, CONFIG)
    if dry_run:
        orders = database_rows(shop.whole_source())
        return _night(shop, orders, accept_drop, on_phase, on_epoch, dry_run=True), False
    with _locked(reports):
        check_writable_file(reports / PENDING)  # also removes what killed runs left beside it
        _complete_pending(shop)
        on_phase("forget")
        _forget(shop)
        orders = database_rows(shop.whole_source())
        for last in read_nights(reports)[-1:]:
            served = last.outcome == "refused" or last.version == _version(folder)
            if served and last.inputs == _inputs_digest(shop, orders, accept_drop):
                if not last.notified:
                    last = _complete(shop, last, on_phase)
                write_night(reports, last)
                return last, True
        return _night(shop, orders, accept_drop, on_phase, on_epoch), False


def _night(
    shop: Shop,
    orders: pl.DataFrame | None,
    accept_drop: bool,
    on_phase: OnPhase,
    on_epoch: OnEpoch | None,
    *,
    dry_run: bool = False,
) -> Night:
    reports, began = Path(shop.reports), time.perf_counter()
    on_phase("read")
    digest = _inputs_digest(shop, orders, accept_drop)
    inputs = read_inputs(shop.whole_source(), _events(shop), shop.forgotten(), orders)
    accepted = [one.counts for one in read_nights(reports) if one.outcome != "refused"]
    counts, before = _counts(inputs.raw), accepted[-1] if accepted else None
    night = Night(
        started=datetime.now(UTC).replace(microsecond=0),
        outcome="refused",
        inputs=digest,
        counts=counts,
        before=before,
        events=inputs.events,
        forgotten=inputs.forgotten,
        notes=inputs.raw.report.notes,
        dry_run=dry_run,
    )
    on_phase("check")
    if (trouble := _drop(counts, before, shop.max_drop)) and not accept_drop:
        night = night.model_copy(update={"sentence": trouble})
        if not dry_run:
            write_night(reports, night)
        return night
    on_phase("train")
    bundle, outcome, sentences = _train(shop, inputs, on_epoch)
    found: dict[str, Any] = {"outcome": outcome.decision, "sentence": outcome.sentence(), "comparison": vars(outcome)}
    found |= {"model": bundle.name, "users": bundle.train_users, "items": len(bundle.items), "choices": sentences}
    night = night.model_copy(update=found | {"seconds": time.perf_counter() - began})
    if dry_run:
        return night
    on_phase("record")
    pending = {"night": night.model_dump(mode="json"), "replaces": _version(Path(shop.folder))}
    write_json(reports / PENDING, pending)
    on_phase("replace")
    bundle.save(shop.folder, kept=_previous(shop).name)
    return _complete(shop, night, on_phase)


def _train(shop: Shop, inputs: Inputs, on_epoch: OnEpoch | None) -> tuple[Bundle, Outcome, tuple[str, ...]]:
    """Fit the better recipe."""
    candidate, folder = shop.candidate(), Path(shop.folder)
    old = Bundle.load(folder, trust=[type(candidate.model)]) if (folder / CONFIG).is_file() else None
    recipe = Recipe(candidate, shop.preparation, shop.signals, shop.source.feature_columns)
    sentences: tuple[str, ...] = ()
    if shop.preset == "shop":
        recipe, sentences = shop_choices(recipe, inputs.raw, shop.preparation.model_fields_set)
    options: dict[str, Any] = {"plan": shop.split, "seed": shop.seed, "histories": shop.histories, "on_epoch": on_epoch}
    bundle, outcome = train_better(inputs.raw, recipe, old, **options)
    return bundle, outcome, (*sentences, *placement_notes(bundle))


def _complete(shop: Shop, night: Night, on_phase: OnPhase = lambda _: None) -> Night:
    """Notify the service and write the report of a night with a replaced model folder."""
    reports = Path(shop.reports)
    on_phase("notify")
    told, notified = _reload(shop)
    found = {"service": told, "notified": notified, "version": _version(Path(shop.folder))}
    night = night.model_copy(update=found)
    on_phase("report")
    nights = (one for one in read_nights(reports) if one.outcome != "refused" and one.key != night.key)
    *_, last = (None, *nights)
    if last is not None and last.forgotten != night.forgotten:  # the older model knew customers who are forgotten now
        shutil.rmtree(_previous(shop), ignore_errors=True)
    write_night(reports, night)
    (reports / PENDING).unlink(missing_ok=True)
    return night


def _complete_pending(shop: Shop) -> None:
    """Complete the report of a run that was killed after it had replaced the model folder."""
    pending = Path(shop.reports) / PENDING
    if not pending.is_file():
        return
    document: Any = read_json(pending)
    if not isinstance(document, dict) or {"night", "replaces"} - document.keys():
        raise InputError(f"Expected the unfinished report of a night in '{pending}', got something else: remove it.")
    if _version(Path(shop.folder)) != document["replaces"]:
        _complete(shop, parse_night(document["night"], str(pending)))
    pending.unlink(missing_ok=True)


def _forget(shop: Shop) -> None:
    """Delete the events of customers to forget."""
    users, events = shop.forgotten(), _events(shop)
    if not users or events is None:
        return
    with closing(Store(events, create=False)) as store:
        store.forget_for_good(users)


def _drop(now: Counts, before: Counts | None, most: float) -> str | None:
    """Return why the data is refused: fewer rows, customers or products than last time by more than a share."""
    if before is None:
        return None
    for name, number in now.model_dump().items():
        last = getattr(before, name)
        if number < (1 - most) * last:
            return (
                f"The data has {number:,} {name}, {1 - number / last:.0%} fewer than the {last:,} of the last night "
                f"(max_drop = {most:g}): check the files, or accept it with --accept-drop. Nothing was changed."
            )
    return None


def _counts(raw: RawData) -> Counts:
    rows = raw.rows
    items = rows["item"].n_unique() if raw.items is None else raw.items["item"].n_unique()
    return Counts(rows=len(rows), customers=rows["user"].n_unique(), products=items)


def _inputs_digest(shop: Shop, orders: pl.DataFrame | None, accept_drop: bool) -> str:
    """Return a digest of all that a run reads: the file of the shop, its tables, the events and our version.

    The order of the rows of a database does not matter.
    """
    digest = hashlib.blake2b(digest_size=16)
    chosen = shop.model_dump_json(exclude=PLACES | SERVED)  # what the places hold counts, not where they are
    digest.update(f"{version('recfusion')} {accept_drop} {chosen}".encode())
    if orders is not None:
        digest.update(f"{orders.schema} {len(orders)} {orders.hash_rows().sum()}".encode())
    for file in (*(shop.whole_source().files if orders is None else ()), shop.products, shop.customers):
        digest.update(file_digest(Path(file)).encode() if file else b"-")
    digest.update("\n".join(shop.forgotten()).encode())
    if (events := _events(shop)) is not None:
        with closing(Store(events, create=False)) as store:
            digest.update(purchases_and_returns(store).write_csv().encode())
            digest.update(b"".join(sorted(user for (user,) in store.rows("SELECT user FROM forgotten"))))
    return digest.hexdigest()


def _reload(shop: Shop) -> tuple[str, bool]:
    """Ask the service to load the new model; return what it answered, and whether it did."""
    if shop.service is None:
        return "not asked", True
    key = os.environ.get(shop.admin_key_env or "", "")
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(f"{shop.service.rstrip('/')}/admin/reload", b"{}", headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_RELOAD_SECONDS) as answer:
            processes = json.loads(answer.read())["processes"]
            return f"reloaded in {processes['loaded']} of {processes['of']} processes", True
    except HTTPError as error:
        return f"refused with status {error.code}", False
    except (OSError, ValueError, LookupError) as error:
        return f"not reached ({getattr(error, 'reason', None) or type(error).__name__})", False


def _events(shop: Shop) -> Path | None:
    """Return the file of events, or None if the service has not made it yet."""
    return Path(shop.events) if shop.events is not None and Path(shop.events).is_file() else None


def _previous(shop: Shop) -> Path:
    return Path(shop.folder).with_name(f"{Path(shop.folder).name}.previous")


def _version(folder: Path) -> str:
    return file_digest(folder / CONFIG)[:12]


@contextmanager
def _locked(reports: Path) -> Iterator[None]:
    """Let one run at a time use a folder of reports; another one waits."""
    reports.mkdir(parents=True, exist_ok=True)
    with (reports / ".lock").open("wb") as lock:
        lock_file(lock.fileno())
        yield
