"""The worker processes of a service and the generation of models that each has loaded, in their shared file."""

import os

from recfusion.server.event_store import Store

_GENERATION = "generation"
_WORKER = "worker "
_TROUBLE = "trouble"


def generation(store: Store) -> str:
    """Return the generation of models that every process should load."""
    return store.state(_GENERATION) or ""


def announce(store: Store, loaded: str) -> str:
    """Record the generation that this process has loaded, and remove processes that have ended.

    Return the generation that every process should load.
    """
    for name in store.states(_WORKER).keys() - _alive(store).keys():
        store.drop_state(name)
    store.set_state(f"{_WORKER}{os.getpid()}", loaded)
    store.drop_state(_TROUBLE)
    return generation(store)


def begin(store: Store, new: str) -> str:
    """Request every process to load a generation, which this one has; return the one requested before."""
    before = announce(store, new)
    store.set_state(_GENERATION, new)
    return before


def report_trouble(store: Store, trouble: str) -> None:
    """Record why this process could not load new models."""
    store.set_state(_TROUBLE, trouble)


def trouble(store: Store) -> str | None:
    """Return why the last reload failed; None if it succeeded."""
    return store.state(_TROUBLE)


def leave(store: Store) -> None:
    store.drop_state(f"{_WORKER}{os.getpid()}")


def followed(store: Store, wanted: str) -> tuple[int, int]:
    """Return how many processes have loaded the generation, and how many there are."""
    loaded = list(_alive(store).values())
    return loaded.count(wanted), len(loaded)


def _alive(store: Store) -> dict[str, str]:
    """Return the generation of each process that runs, by its name in the store."""
    return {name: loaded for name, loaded in store.states(_WORKER).items() if _runs(int(name.removeprefix(_WORKER)))}


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
