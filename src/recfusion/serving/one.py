"""Lists for single users in milliseconds: ids in, plain values out, without frames and joins.

Several users' requests, each with rules and knobs of its own, are scored in one call of the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from recfusion.core.arrays import Csr, IntArray, binary_csr
from recfusion.core.errors import InputError
from recfusion.serving.bundle import Bundle
from recfusion.serving.knobs import Knobs
from recfusion.serving.lists import ListMaker
from recfusion.serving.rules import Rules
from recfusion.serving.why import Reason, explained


@dataclass(frozen=True)
class Ask:
    """What one user has, and the list that is wanted."""

    history: Sequence[str]  # ids as texts
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
    found = [bundle.columns_of(ask.history) for ask in asked]
    histories = history_rows(found, len(bundle.items))
    scores = bundle.model.score(histories)
    answers: list[Answer | InputError] = []
    for row, ask in enumerate(asked):
        try:
            maker = ListMaker.of(bundle, ask.rules, ask.knobs)
            history = histories if len(asked) == 1 else histories[[row]]
            lists = maker.lists(history, ask.k, scores=scores[row : row + 1])
        except InputError as error:
            answers.append(error)
            continue
        columns = lists.items[0][lists.items[0] >= 0]
        because: Sequence[Sequence[Reason]] = [()] * len(columns)
        kind = None
        if ask.why:
            told = explained(maker, history, columns, ask.why)
            because, kind = told.because, told.kind
        values = lists.scores[0][: len(columns)].tolist()
        places = [Place(*place) for place in zip(columns.tolist(), values, because, strict=True)]
        unknown = [text for text, column in zip(ask.history, found[row].tolist(), strict=True) if column < 0]
        answers.append(Answer("history" if history.nnz else "popularity", unknown, places, kind))
    return answers


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
