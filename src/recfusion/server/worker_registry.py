"""Which processes serve, and which generation of the models each of them has; by the file that they share."""

import os

from recfusion.server.event_store import Store

_GENERATION = "generation"
_WORKER = "worker "


def generation(store: Store) -> str:
    """Return the generation of models that every process should have."""
    return store.state(_GENERATION) or ""


def announce(store: Store, loaded: str) -> None:
    """Tell the others which generation this process has; forget those that are no more."""
    for name in store.states(_WORKER):
        if not _alive(int(name.removeprefix(_WORKER))):
            store.drop_state(name)
    store.set_state(f"{_WORKER}{os.getpid()}", loaded)


def begin(store: Store, new: str) -> None:
    """Ask every process to load the models again; this one has."""
    store.set_state(_GENERATION, new)
    announce(store, new)


def leave(store: Store) -> None:
    """Tell the others that this process serves no more."""
    store.drop_state(f"{_WORKER}{os.getpid()}")


def followed(store: Store, wanted: str) -> tuple[int, int]:
    """Return how many processes have the generation, and how many there are."""
    found = [loaded for name, loaded in store.states(_WORKER).items() if _alive(int(name.removeprefix(_WORKER)))]
    return found.count(wanted), len(found)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
