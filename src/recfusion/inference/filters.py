"""Filters applied to an item table: masks before the selection, so that a list is as long as they allow."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recfusion.core.errors import InputError
from recfusion.inference.bundle import Bundle
from recfusion.inference.categories import Categories
from recfusion.inference.request import Filters, ItemFilters, errors_about


@dataclass(frozen=True)
class CategoryLimit:
    """The largest number of items of each category in a list."""

    categories: Categories
    most: int


@dataclass(frozen=True)
class AllowedItems:
    """The items of a model that filters allow."""

    mask: NDArray[np.bool_] | None  # (items,); None: all items
    limits: tuple[CategoryLimit, ...]
    unknown: int  # ids in allow and deny that the item table does not have
    bought: NDArray[np.bool_] | None = None  # (items,): may be recommended to users who bought them; None: never
    new: NDArray[np.bool_] | None = None  # (items,): may be recommended to users who did not; None: all items


def apply_filters(filters: ItemFilters, bundle: Bundle) -> AllowedItems:
    """Return the items that the filters allow; filters that leave no item raise an error with counts."""
    masks, unknown = dict[str, NDArray[np.bool_]](), 0
    if filters.where is not None:
        with errors_about("where"):
            masks["where"] = bundle.matching(filters.where)
    if filters.allow is not None:
        masks["allow"], unknown = _with_ids(bundle, filters.allow)
    if filters.deny:
        denied, missing = _with_ids(bundle, filters.deny)
        unknown += missing
        if denied.any():
            masks["deny"] = ~denied
    mask = None
    if masks:
        mask = np.logical_and.reduce(list(masks.values()))
        if not mask.any():
            removed = ", ".join(f"{name} removes {np.count_nonzero(~one):,}" for name, one in masks.items())
            field = next((name for name, one in masks.items() if not one.any()), next(iter(masks)))
            raise InputError(
                f"The filters leave none of {len(bundle.items):,} items ({removed}): relax one of them.", field
            )
    limits = []
    for column, most in filters.at_most.items() if isinstance(filters, Filters) else ():
        with errors_about(f"at_most.{column}"):
            limits.append(CategoryLimit(bundle.categories(column), most))
    return AllowedItems(mask, tuple(limits), unknown, *_again(filters, bundle))


def _again(filters: ItemFilters, bundle: Bundle) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
    """Return which items may be recommended to users who bought them, and which to users who did not."""
    if not isinstance(filters, Filters) or (filters.again == "never" and not filters.again_by):
        return None, None
    if bundle.rates is None:
        raise InputError(
            "This model folder has no rates of re-orders, since its training data had too few repeat purchases with "
            "times: use --again never, or train it on orders with times.",
            "again",
        )
    modes = np.full(len(bundle.items), filters.again, "<U7")
    for column, values in filters.again_by.items():
        with errors_about(f"again_by.{column}"):
            categories = bundle.categories(column)
            for value, mode in values.items():
                modes[categories.chance(categories.number(value)) > 0] = mode
    return modes != "never", modes != "only"


def check_columns(bundle: Bundle, where: str | None, at_most: Mapping[str, int]) -> None:
    """Raise if a condition or a limit names a column that the item table lacks; it may leave no item."""
    if where is not None:
        with errors_about("where"):
            bundle.matching(where)
    apply_filters(Filters(at_most=dict(at_most)), bundle)


def _with_ids(bundle: Bundle, ids: tuple[str, ...]) -> tuple[NDArray[np.bool_], int]:
    """Return which items have one of these ids, and how many ids no item has."""
    columns = bundle.columns_of(ids)
    found = np.zeros(len(bundle.items), bool)
    found[columns[columns >= 0]] = True
    return found, int(np.count_nonzero(columns < 0))


def check_item_filters(filters: ItemFilters | None, purpose: str) -> ItemFilters:
    """Return the filters; limits per category, which only users' lists have, raise an error."""
    if isinstance(filters, Filters) and filters.at_most:
        raise InputError(f"Expected filters without at_most for {purpose}: leave it out.", "at_most")
    return filters or ItemFilters()


def check_count(field: str, what: str, number: object) -> None:
    """Raise unless a number of things is whole and at least 1."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
        raise InputError(f"Expected at least one {what}, got {number!r}.", field)
