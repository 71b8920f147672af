"""Rules of what a list may hold: they are masks before the selection, so that a list is as long as they allow."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recfusion.core.errors import InputError
from recfusion.inference.bundle import Bundle
from recfusion.inference.categories import Categories
from recfusion.inference.ids import id_texts


@dataclass(frozen=True)
class Rules:
    """What may be recommended.

    `where` is a condition on the item table (see `recfusion.inference.conditions`), `allow` the only ids that may come,
    `deny` ids that may not, `at_most` the largest number of items of any one value of a column. A list with `at_most`
    takes the items in the order of their scores and passes over those of which one value is used up.
    """

    where: str | None = None
    allow: Iterable[Any] | None = None
    deny: Iterable[Any] = ()
    include_seen: bool = False
    at_most: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.where is not None and not isinstance(self.where, str):
            raise InputError(f"Expected a condition as a text in where, got {self.where!r}.")
        if not isinstance(self.at_most, Mapping):
            raise InputError(f"Expected at_most as {{column: number}}, got {self.at_most!r}.")
        for column, most in self.at_most.items():
            check_count(f"item per value of {column} in at_most", most)


def check_count(what: str, number: object) -> None:
    """Raise unless a number of things is a whole one, and at least 1."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
        raise InputError(f"Expected at least one {what}, got {number!r}.")


@dataclass(frozen=True)
class Limit:
    """At most so many items of each category."""

    categories: Categories
    most: int


@dataclass(frozen=True)
class Allowed:
    """What rules come to on an item table."""

    mask: NDArray[np.bool_] | None  # (items,); None: everything
    limits: tuple[Limit, ...]
    unknown: int  # ids in allow and deny that the item table does not have


def allowed_items(rules: Rules, bundle: Bundle) -> Allowed:
    """Return what the rules allow of a model's items; rules that leave nothing are an error with counts."""
    items = bundle.items
    unknown, masks = 0, {}
    if rules.where is not None:
        masks["where"] = bundle.matching(rules.where)
    if rules.allow is not None:
        masks["allow"], missing = _named(bundle, rules.allow)
        unknown += missing
    if not isinstance(rules.deny, tuple | list) or rules.deny:
        denied, missing = _named(bundle, rules.deny)
        unknown += missing
        if denied.any():
            masks["deny"] = ~denied
    mask = None
    if masks:
        mask = np.logical_and.reduce(list(masks.values()))
        if not mask.any():
            taken = ", ".join(f"{name} removes {np.count_nonzero(~one):,}" for name, one in masks.items())
            raise InputError(f"The rules leave none of {len(items):,} items ({taken}): relax one of them.")
    limits = tuple(Limit(bundle.categories(column), most) for column, most in rules.at_most.items())
    return Allowed(mask, limits, unknown)


def _named(bundle: Bundle, ids: Iterable[Any]) -> tuple[NDArray[np.bool_], int]:
    """Return which items have one of these ids, and how many ids no item has."""
    columns = bundle.columns_of([text for text in id_texts(ids) if text is not None])
    found = np.zeros(len(bundle.items), bool)
    found[columns[columns >= 0]] = True
    return found, int(np.count_nonzero(columns < 0))
