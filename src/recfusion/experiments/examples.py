"""Example lists for a few test users, kept with each result. They name users by a number unless ids are asked for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recfusion.core.arrays import IntArray
from recfusion.data.interactions import Interactions
from recfusion.data.split import Fold

USERS = 3
HISTORY = 12  # titles that are kept of a user's history
LENGTH = 10  # places of a list
_NAMES = ("title", "name")  # columns of the item table that say what an item is called


@dataclass(frozen=True)
class Place:
    """A recommended item, and whether it was held out."""

    title: str
    hit: bool


@dataclass(frozen=True)
class Example:
    """What a model recommends to one test user."""

    number: int  # 1, 2, ...: the same user for every model of a split
    history: tuple[str, ...]  # titles, the rarest items first
    more: int  # items of the history beyond those
    places: tuple[Place, ...]
    user: str | None = None  # the user's id, where it may be shown


def example_rows(fold: Fold) -> list[int]:
    """Return rows at equal distances through a fold, so that the choice does not favour any model."""
    n_users = len(fold.users)
    return [int(row) for row in np.unique(np.linspace(0, n_users - 1, min(USERS, n_users)).astype(np.int64))]


def examples(
    lists: IntArray, rows: Sequence[int], data: Interactions, fold: Fold, *, user_ids: bool = False
) -> tuple[Example, ...]:
    """Return the examples of recommended `lists`, one for each of `rows`."""
    names = item_names(data)
    found = []
    for place, row in enumerate(rows):
        known = _most_telling(data, fold.history[[row]].indices)
        wanted = set(fold.held_out[[row]].indices.tolist())
        found.append(
            Example(
                number=place + 1,
                history=tuple(names[item] for item in known[:HISTORY]),
                more=max(0, len(known) - HISTORY),
                places=tuple(Place(names[item], int(item) in wanted) for item in lists[place] if item >= 0),
                user=str(data.users[int(fold.users[row])]) if user_ids else None,
            )
        )
    return tuple(found)


def item_names(data: Interactions) -> list[str]:
    """Return what each item is called: its title or name where there is one, else its id."""
    ids = [str(item) for item in data.items]
    column = next((name for name in _NAMES if name in data.item_table.columns), None)
    if column is None:
        return ids
    return [title or name for title, name in zip(data.item_table[column].cast(str).to_list(), ids, strict=True)]


def _most_telling(data: Interactions, items: IntArray) -> list[int]:
    """Return a history's items, the rarest first: they say most about a user."""
    counts = np.bincount(data.matrix.indices, minlength=data.n_items)
    return [int(item) for item in items[np.argsort(counts[items], kind="stable")]]
