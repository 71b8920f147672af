"""Example lists for a few test users: kept with each result, and set side by side across models."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recfusion.core.arrays import IntArray
from recfusion.data.interactions import Interactions
from recfusion.data.split import Fold
from recfusion.evaluation.topk import top_k
from recfusion.models.base import Recommender

if TYPE_CHECKING:
    from recfusion.experiments.compare import Run

USERS = 3
HISTORY = 12  # titles that are kept of a user's history
LENGTH = 10  # places of a list


@dataclass(frozen=True)
class Place:
    """A recommended item, and whether it was held out."""

    title: str
    hit: bool


@dataclass(frozen=True)
class Example:
    """What a model recommends to one test user."""

    user: str
    history: tuple[str, ...]  # titles, the rarest items first
    more: int  # items of the history beyond those
    places: tuple[Place, ...]


def examples(model: Recommender, data: Interactions, fold: Fold) -> tuple[Example, ...]:
    """Return what a model recommends to some users of a fold.

    Users are taken at equal distances through the fold, so that the choice does not favour any model.
    """
    rows = np.unique(np.linspace(0, len(fold.users) - 1, min(USERS, len(fold.users))).astype(np.int64))
    history, held_out = fold.history[rows], fold.held_out[rows]
    lists, _ = top_k(model.score(history), history, LENGTH)
    names = _titles(data)
    found = []
    for place, row in enumerate(rows):
        known = _most_telling(data, history[[place]].indices)
        wanted = set(held_out[[place]].indices.tolist())
        found.append(
            Example(
                user=str(data.users[int(fold.users[row])]),
                history=tuple(names[item] for item in known[:HISTORY]),
                more=max(0, len(known) - HISTORY),
                places=tuple(Place(names[item], int(item) in wanted) for item in lists[place] if item >= 0),
            )
        )
    return tuple(found)


def side_by_side(by_model: "Mapping[str, Iterable[Run]]") -> list[dict[str, Any]]:
    """Return the examples of one split, user by user with the lists of every model that has them.

    It is the split that most models have examples of, and the first of several.
    """
    known = [run for runs in by_model.values() for run in runs if run.examples]
    if not known:
        return []
    have = Counter(run.seed for run in known)
    seed = min(have, key=lambda seed: (-have[seed], seed))
    shown = [run for run in known if run.seed == seed]
    users = {of.user: of for run in shown for of in run.examples}
    return [
        {
            "user": user,
            "history": list(first.history),
            "more": first.more,
            "lists": {run.name: _list(of) for run in shown for of in run.examples if of.user == user},
        }
        for user, first in users.items()
    ]


def _list(example: Example) -> list[dict[str, Any]]:
    return [{"title": place.title, "hit": place.hit} for place in example.places]


def _titles(data: Interactions) -> list[str]:
    table = data.item_table
    ids = [str(item) for item in data.items]
    if "title" not in table.columns:
        return ids
    return [title or name for title, name in zip(table["title"].cast(str).to_list(), ids, strict=True)]


def _most_telling(data: Interactions, items: IntArray) -> list[int]:
    """Return a history's items, the rarest first: they say most about a user."""
    counts = np.bincount(data.matrix.indices, minlength=data.n_items)
    return [int(item) for item in items[np.argsort(counts[items], kind="stable")]]
