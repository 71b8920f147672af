"""Lists for single users in milliseconds: ids in, plain values out, without frames and joins.

Several users' requests, each with rules and knobs of its own, are scored in one call of the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, IntArray, binary_csr
from recfusion.core.errors import InputError
from recfusion.data.signals import Extra
from recfusion.evaluation.scoring import scores as model_scores
from recfusion.inference.bundle import Bundle
from recfusion.inference.explanations import Reason, explained
from recfusion.inference.filters import Rules
from recfusion.inference.histories import check_read, with_signals
from recfusion.inference.lists import ListMaker
from recfusion.inference.reranking import Knobs
from recfusion.models.abilities import check_rating_values, finds_lists


@dataclass(frozen=True)
class Had:
    """An item of a history, with what else is known of it."""

    item: str
    grade: float | None = None  # rating or count
    time: float | None = None  # seconds since 1970


@dataclass(frozen=True)
class Ask:
    """What one user has, and the list that is wanted."""

    history: Sequence[str | Had]  # ids as texts; one without a time is newer than those before it
    k: int = 10
    rules: Rules = field(default_factory=Rules)
    knobs: Knobs = field(default_factory=Knobs)
    why: int = 0


@dataclass(frozen=True)
class Place:
    """One item of a list."""

    column: int  # of the model
    score: float
    because: Sequence[Reason] = ()


@dataclass(frozen=True)
class Answer:
    """One user's list."""

    basis: Literal["history", "popularity"]
    unknown: list[str]  # ids of the history that the model does not know
    places: list[Place]
    reasons: str | None = None  # how the reasons were found, where there are any


def answer(bundle: Bundle, asked: Sequence[Ask]) -> list[Answer | InputError]:
    """Return the lists; what is wrong with one request is its answer and leaves the others alone."""
    if any(faults := [_fault(bundle, ask) for ask in asked]):
        others = iter(answer(bundle, [ask for ask, fault in zip(asked, faults, strict=True) if fault is None]))
        return [next(others) if fault is None else fault for fault in faults]
    if not asked:
        return []
    ids = [[item_of(one) for one in ask.history] for ask in asked]
    found = [bundle.columns_of(own) for own in ids]
    histories, extra = _histories(bundle, asked, found)
    # A model that finds lists without all scores is asked for each list, and the others for all at once.
    scores = None if finds_lists(bundle.model) else model_scores(bundle.model, histories, extra)
    answers: list[Answer | InputError] = []
    for row, ask in enumerate(asked):
        try:
            maker = ListMaker.of(bundle, ask.rules, ask.knobs)
            history = histories if len(asked) == 1 else histories[[row]]
            own = None if extra is None else extra.rows(slice(row, row + 1))
            lists = maker.lists(history, ask.k, own, scores=None if scores is None else scores[row : row + 1])
        except InputError as error:
            answers.append(error)
            continue
        columns = lists.items[0][lists.items[0] >= 0]
        because: Sequence[Sequence[Reason]] = [()] * len(columns)
        kind = None
        if ask.why:
            told = explained(maker, history, columns, ask.why, own)
            because, kind = told.because, told.kind
        values = lists.scores[0][: len(columns)].tolist()
        places = [Place(*place) for place in zip(columns.tolist(), values, because, strict=True)]
        unknown = [text for text, column in zip(ids[row], found[row].tolist(), strict=True) if column < 0]
        answers.append(Answer("history" if history.nnz else "popularity", unknown, places, kind))
    return answers


def item_of(one: str | Had) -> str:
    """Return the id of an item of a history."""
    return one if isinstance(one, str) else one.item


def _histories(bundle: Bundle, asked: Sequence[Ask], found: Sequence[IntArray]) -> tuple[Csr, Extra | None]:
    """Return the histories (users, items) and, for a model that reads more of them, what that is."""
    if not {"grades", "times"} & set(bundle.protocol.signals.used):
        return history_rows(found, len(bundle.items)), None
    entries = [one for ask in asked for one in ask.history]
    whens = np.concatenate([_times(ask.history) for ask in asked])
    grades = np.array([np.nan if isinstance(one, str) or one.grade is None else one.grade for one in entries])
    rows, columns = np.repeat(np.arange(len(asked)), [len(own) for own in found]), np.concatenate(found)
    known = columns >= 0
    parts = (rows[known], columns[known], grades[known].astype(np.float32), whens[known])
    matrix, extra, _ = with_signals(bundle.protocol, *parts, (len(asked), len(bundle.items)))
    return matrix, extra


def _times(history: Sequence[str | Had]) -> NDArray[np.int64]:
    """Return when each entry was; one that does not say came a second after the newest before it.

    A service adds what was just put on a shelf, without times, to what it knows of a user, whose entries may have some
    in any order: it must be the newest.
    """
    times, newest = np.zeros(len(history), np.int64), -1
    for place, one in enumerate(history):
        times[place] = newest + 1 if isinstance(one, str) or one.time is None else int(one.time)
        newest = max(newest, int(times[place]))
    return times


def check_history(bundle: Bundle, history: Sequence[str | Had]) -> None:
    """Raise where a history says what its model does not read, or has a grade that it does not know."""
    said = [one for one in history if not isinstance(one, str)]
    grades = [one.grade for one in said if one.grade is not None]
    check_read(bundle.protocol, graded=bool(grades), timed=any(one.time is not None for one in said))
    check_rating_values(bundle.model, np.array(grades, np.float32), "the history")


def _fault(bundle: Bundle, ask: Ask) -> InputError | None:
    try:
        check_history(bundle, ask.history)
    except InputError as error:
        return error
    return None


def history_rows(found: Sequence[IntArray], n_items: int) -> Csr:
    """Return histories, given as columns of the model with -1 for unknown ids, as 0/1 rows (users, items)."""
    rows = [np.unique(columns[columns >= 0]) for columns in found]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return binary_csr(indptr, np.concatenate(rows) if rows else np.zeros(0, np.int64), n_items)


class ItemFacts:
    """What the item table says of each item, as values that JSON knows; read once."""

    def __init__(self, bundle: Bundle, hidden: Sequence[str] = ()) -> None:
        self._names = bundle.names
        self._columns = {
            name: plain_values(bundle.items[name].to_list())
            for name in bundle.items.columns
            if name not in ("item", *hidden)
        }

    def of(self, column: int) -> dict[str, Any]:
        """Return an item's id, name and further columns."""
        item, name = self._names[column]
        return {"item": item, "name": name, "columns": {key: values[column] for key, values in self._columns.items()}}


def plain_values(values: list[Any]) -> list[Any]:
    """Return values of a table as JSON knows them: numbers that are none are missing, other kinds are texts."""
    if all(value is None or isinstance(value, str | bool | int) for value in values):
        return values
    return [
        (value if np.isfinite(value) else None)
        if isinstance(value, float)
        else value
        if value is None or isinstance(value, str | bool | int)
        else str(value)
        for value in values
    ]
