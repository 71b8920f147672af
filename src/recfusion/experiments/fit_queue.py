"""The missing fits of a run, shared with other runs on the same store: each fit is claimed before it starts."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recfusion.core.claims import Claims
from recfusion.core.jsonl import plain_path
from recfusion.experiments.result import Result, ResultKey, append_result, read_new_results
from recfusion.models.code_digest import code_state

log = logging.getLogger(__name__)
_SECONDS = 0.5  # between looks at the fits of other runs


@dataclass(frozen=True)
class Task:
    """One fit: the candidate with this label on the split with this seed."""

    label: str
    seed: int

    def __str__(self) -> str:
        return f"{self.label}, split {self.seed}"


@dataclass
class FitQueue:
    """Fits by their keys in a store; those that another run does are left to it, unless it dies.

    `on_stored` receives fits that another run finished meanwhile. Without a store, nothing is claimed.
    """

    missing: dict[Task, ResultKey]
    codes: Mapping[Task, str]  # digest of today's code of each fit
    store: Path | None
    offset: int  # bytes of the store that are known
    on_stored: Callable[[Task, Result], None]
    _held: dict[Task, ResultKey] = field(default_factory=dict, init=False)

    def run(self, run_tasks: Callable[[], None]) -> None:
        """Call `run_tasks`, which takes tasks with `next`, until no fit is missing."""
        plain = None if self.store is None else plain_path(self.store)
        with Claims(None if plain is None else plain.with_name(f".{plain.name}.tmp-claims")) as self._claims:
            run_tasks()
            if self.missing:
                log.warning("Waiting for %d fits of another run on '%s'.", len(self.missing), self.store)
            while self.missing:
                time.sleep(_SECONDS)
                run_tasks()

    def next(self) -> Task | None:
        """Return a fit that no other run does, and claim it; None if there is none now."""
        for task, key in list(self.missing.items()):
            if not self._claims.take(str(key)):
                continue
            self._held[task] = key
            self._take_stored()  # after the claim: its last owner saved the result before it ended the claim
            if task in self.missing:
                del self.missing[task]
                return task
            self._release(task)
        return None

    def end(self, task: Task, result: Result | None) -> None:
        """Save the result of a claimed fit, if it has one, and end the claim."""
        if result is not None and self.store is not None:
            append_result(self.store, result)
        self._release(task)

    def _release(self, task: Task) -> None:
        self._claims.release(str(self._held.pop(task)))

    def _take_stored(self) -> None:
        """Remove the fits whose results other runs have added to the store."""
        if self.store is None:
            return
        added, self.offset = read_new_results(self.store, self.offset)
        by_key = {result.key: result for result in added}
        for task, key in list(self.missing.items()):
            if key in by_key and code_state(by_key[key].code, self.codes[task]) != "stale":
                del self.missing[task]
                self.on_stored(task, by_key[key])
