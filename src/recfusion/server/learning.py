"""`serve --learn`: events update the weights of the main model while it serves, and forgotten users leave them.

One process at a time updates a copy of the model, replaces the folder in one step and asks all processes to reload. How
far it came is stored after the folder is in place: a process that is killed in between repeats the same step, which
changes nothing the second time, because a user's history is a set of items.
"""

import json
import logging
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl

from recfusion.core.errors import InputError
from recfusion.core.files import file_digest
from recfusion.inference.bundle import Bundle
from recfusion.inference.bundle_files import CONFIG
from recfusion.inference.new_items import with_new_of, without_new
from recfusion.inference.training_rows import TrainingRows
from recfusion.inference.update import changed_bundle, grows, updating
from recfusion.inference.update_rows import new_rows, training_of
from recfusion.server.event_store import Store

log = logging.getLogger(__name__)
_LEARNED = "learned"  # state: key of the training rows, number and arrival of the last event that the weights know
_UNLEARN = "unlearn "  # prefix of a state: a user who must leave the weights, as the model's digest of the id
_EVENTS = 20_000  # events of one step
_SCHEMA = {"user": pl.String, "item": pl.String, "time": pl.Int64}


def check_learning(bundle: Bundle) -> None:
    """Raise unless a model can learn while it serves."""
    try:
        training_of(bundle)
    except InputError as error:
        raise InputError(f"--learn: {error}", "learn") from None


def must_unlearn(store: Store, bundle: Bundle, user: str) -> None:
    """Record that a user must leave the weights, in the transaction that deletes the events.

    Also for users outside of the weights: an update that runs at this moment may add them.
    """
    if bundle.training is not None:
        store.set_state(f"{_UNLEARN}{bundle.training.digests([user]).tobytes().hex()}", "")


def has_to_unlearn(store: Store) -> bool:
    """Return whether users have to leave the weights."""
    return bool(store.states(_UNLEARN))


def is_pending(store: Store, bundle: Bundle) -> bool:
    """Return whether there is something to learn or to unlearn."""
    if has_to_unlearn(store):
        return True
    return bundle.training is not None and bool(store.changed_users(*_learned(store, bundle.training), 1)[0])


def learn(folder: Path, bundle: Bundle, version: str, events: Path) -> bool:
    """Update the model folder by the events since the last update; return whether it changed.

    `bundle` is the model of the folder, and `version` the start of the digest of its configuration.
    """
    with updating(folder), closing(Store(events)) as store:
        if not file_digest(folder / CONFIG).startswith(version):
            raise InputError("The model folder was replaced: it learns again after a reload.")
        training, given = training_of(bundle), bundle
        bundle = first = without_new(given)
        unlearned = list(store.states(_UNLEARN))
        digests = b"".join(bytes.fromhex(name.removeprefix(_UNLEARN)) for name in unlearned)
        places = training.places(np.frombuffer(digests, np.uint8).reshape(-1, 16))
        if (gone := np.unique(places[places >= 0])).size:
            bundle = changed_bundle(bundle, None, gone, others="drop")
        users, last, arrived = store.changed_users(*_learned(store, training), _EVENTS)
        bundle = _with_events(bundle, store, users)
        if bundle is not first:
            with_new_of(bundle, given).save(folder)
        with store.writing():
            store.set_state(_LEARNED, json.dumps([training.salt.hex(), last, arrived]))
            for name in unlearned:
                store.drop_state(name)
    if bundle is first:
        return False
    done = {name: sum(getattr(one, name) for one in bundle.updates) for name in bundle.updates[-1].COUNTS}
    log.warning(json.dumps({"event": "learned", "users": len(users), "process": os.getpid(), "since last fit": done}))
    return True


def _learned(store: Store, training: TrainingRows) -> tuple[int, float]:
    """Return number and arrival of the last event that the weights know; 0 after a full fit, which may know none."""
    key, number, arrived = json.loads(store.state(_LEARNED) or "[null, 0, 0]")
    return (int(number), float(arrived)) if key == training.salt.hex() else (0, 0.0)


def _with_events(bundle: Bundle, store: Store, users: Sequence[str]) -> Bundle:
    """Return the model with the purchases and returns of these users, and of others who have the same new items."""
    items = {user: store.user_items(user) for user in users}
    named = sorted({item for own in items.values() for item in own.have})
    unknown = [item for item, place in zip(named, bundle.columns_of(named), strict=True) if place < 0]
    can_grow = grows(bundle, "keep")
    for user in store.users_of(unknown) if can_grow else ():
        if user not in items:
            items[user] = store.user_items(user)
    have = [(user, item, int(times[-1])) for user, own in items.items() for item, times in own.have.items()]
    lone = [(user, None, None) for user, own in items.items() if not own.have and own.returned]
    if not have and not lone:
        return bundle
    returned = [(user, item, int(when)) for user, own in items.items() for item, when in own.returned.items()]
    table, back = (pl.DataFrame(rows, schema=_SCHEMA, orient="row") for rows in ([*have, *lone], returned))
    new = new_rows(bundle, table, returned=back, grows=can_grow)
    return changed_bundle(bundle, new, np.zeros(0, np.int64)) if new.ids else bundle
