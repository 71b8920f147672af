"""Example lists for a few test users, side by side across models, with titles."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from recfusion.core.arrays import IntArray
from recfusion.data.interactions import Interactions
from recfusion.data.split import split
from recfusion.evaluation.topk import top_k
from recfusion.models.bundle import Bundle


def examples(bundles: Sequence[Bundle], data: Interactions, *, n_users: int = 3, k: int = 10) -> list[dict[str, Any]]:
    """Return what each model recommends to some test users of the models' common split, hits marked.

    Users are taken at equal distances through the test fold, so that the choice does not favour any model.
    """
    first = bundles[0]
    fold = split(data, first.protocol.plan, seed=first.seed).test
    rows = np.unique(np.linspace(0, len(fold.users) - 1, min(n_users, len(fold.users))).astype(np.int64))
    history, held_out = fold.history[rows], fold.held_out[rows]
    lists = {bundle.name: top_k(bundle.model.score(history), history, k)[0] for bundle in bundles}
    names = _titles(data)
    shown = []
    for place, row in enumerate(rows):
        wanted = set(held_out[[place]].indices.tolist())
        shown.append(
            {
                "user": str(data.users[int(fold.users[row])]),
                "history": [names[item] for item in _most_telling(data, history[[place]].indices)],
                "lists": {
                    model: [{"title": names[item], "hit": int(item) in wanted} for item in items[place] if item >= 0]
                    for model, items in lists.items()
                },
            }
        )
    return shown


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
