"""Why an item is not in a list: its rank, the filters that exclude it, reasons for and against it, and remedies."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import vstack

from recfusion.core.errors import InputError
from recfusion.evaluation.scoring import scores
from recfusion.inference.bundle import Bundle
from recfusion.inference.explanations import Reason, reason_of
from recfusion.inference.filters import apply_filters
from recfusion.inference.histories import Histories, check_history, histories_from_entries
from recfusion.inference.lists import ListMaker, lists_for_requests, with_items
from recfusion.inference.request import Filters, ItemFilters, ListRequest, Reranking
from recfusion.models.base import model_reasons

_REASONS = 3  # for the item, and against it
_TRIED, _ADDED = 20, 3  # similar items that are tried in the history, and those returned if they halve the rank
_OPEN = ListRequest(again="allowed")  # its fields exclude no item


@dataclass(frozen=True)
class Remedy:
    """A change of the request, the item's rank with it, and the items that it adds to the history."""

    field: str
    text: str
    rank: int
    items: tuple[str, ...] = ()


@dataclass(frozen=True)
class WhyNot:
    """What decides on an item; `rank` is None if a filter excludes it."""

    item: str
    name: str
    listed: bool
    rank: int | None  # among all items that the filters allow
    excluded_by: list[str]  # fields of the request
    supporting: list[Reason]
    opposing: list[Reason]
    remedies: list[Remedy]


def why_not(bundle: Bundle, item: str, request: ListRequest) -> WhyNot:
    """Return why an item is or is not in the list of a request, and which changes would bring it in."""
    column = int(bundle.columns_of([item])[0])
    if column < 0:
        raise InputError(f"The model knows no item '{item}': give the id of one of its items.", "item")
    check_history(bundle, request.history or ())
    histories, _ = histories_from_entries(bundle, [request.history or ()])
    excluded, listed = _excluding(bundle, request, histories, column), False
    if "history" in excluded or ("again" in excluded and bundle.rates is None):
        return WhyNot(*bundle.names[column], False, None, excluded, [], [], [])
    lifted = [*excluded, *(["again_by"] if "again" in excluded else [])]
    opened = request.model_copy(update={name: getattr(_OPEN, name) for name in lifted})
    rank = _ranks(bundle, opened, histories, column)[0]
    if not excluded:
        found = lists_for_requests(bundle, [request])[0]
        if isinstance(found, InputError):
            raise found
        listed = column in found.items
        if not listed and rank <= request.k:  # the greedy selection preferred other items
            excluded = ["at_most"] if request.at_most else ["reranking"]
    remedies = [] if listed else _remedies(bundle, request, histories, column, rank, excluded)
    reasons = _reasons(bundle, request.reranking, histories, column)
    return WhyNot(*bundle.names[column], listed, None if excluded else rank, excluded, *reasons, remedies)


def _excluding(bundle: Bundle, request: ListRequest, histories: Histories, column: int) -> list[str]:
    """Return the fields of a request that each exclude an item; `history` for a returned or disliked one."""
    filters = {name: ItemFilters(**{name: getattr(request, name)}) for name in ("where", "allow", "deny")}
    masks = {name: apply_filters(one, bundle).mask for name, one in filters.items()}
    found = [name for name, mask in masks.items() if mask is not None and not mask[column]]
    if histories.returned is not None and column in histories.returned.indices:
        return [*found, "history"]
    allowed = apply_filters(Filters(again=request.again, again_by=request.again_by), bundle)
    may_be = allowed.bought if column in histories.matrix.indices else allowed.new
    excluded = column in histories.matrix.indices if may_be is None else not may_be[column]
    return [*found, "again"] if excluded else found


def _ranks(bundle: Bundle, request: ListRequest, histories: Histories, column: int) -> list[int]:
    """Return an item's rank by score for each history; the stages that select item by item are left out."""
    weights = request.reranking.model_copy(update={"diversity": 0.0, "shares": {}, "new_share": 0.0, "pins": {}})
    maker = ListMaker.of(bundle, request.model_copy(update={"at_most": {}}), weights)
    own = scores(bundle.model, histories.matrix, histories.extra)
    items = maker.lists(histories, len(bundle.items), scores=own).items
    return [int(np.flatnonzero(row == column)[0]) + 1 if column in row else len(bundle.items) for row in items]


def _reasons(
    bundle: Bundle, reranking: Reranking, histories: Histories, column: int
) -> tuple[list[Reason], list[Reason]]:
    """Return what raises and what lowers an item's score: items of the history, and re-ranking controls."""
    terms = ListMaker.of(bundle, None, reranking).terms
    controls, own = [Reason((), name, float(term[column])) for name, term in terms.items()], list[Reason]()
    if histories.matrix.nnz:
        given = model_reasons(bundle.model, histories.matrix, np.array([column]), histories.extra)
        parts = zip(given.sources, given.parts[0], strict=True)
        own = sorted((reason_of(bundle, *one, histories.extra) for one in parts), key=lambda one: one.weight)
    raising, lowering = own[::-1][:_REASONS] + controls, own[:_REASONS] + controls
    return [one for one in raising if one.weight > 0], [one for one in lowering if one.weight < 0]


def _remedies(
    bundle: Bundle, request: ListRequest, histories: Histories, column: int, rank: int, excluded: list[str]
) -> list[Remedy]:
    """Return changes of a request that bring an item into its list or nearer to it; only the filter if there is one."""
    longer = [f"with a list of {rank:,} items"] if rank > request.k else []
    if excluded:
        lifted = ["with again: allowed" if name == "again" else f"without {name}" for name in excluded]
        return [Remedy(excluded[0], " and ".join([*lifted, *longer]), rank)]
    found = [Remedy("k", text, rank) for text in longer]
    if request.reranking != Reranking():
        plain = _ranks(bundle, request.model_copy(update={"reranking": Reranking()}), histories, column)[0]
        found += [Remedy("reranking", "without re-ranking", plain)] if plain < rank else []
    near, value = bundle.similarity.nearest(column)
    order = near[np.argsort(-value, kind="stable")]
    tried = order[~np.isin(order, [*histories.matrix.indices, column])][:_TRIED]
    if not len(tried) or histories.extra is not None or histories.purchases is not None:
        return found
    more = with_items(vstack([histories.matrix] * len(tried), format="csr"), np.arange(len(tried)), tried)
    ranked = sorted(zip(_ranks(bundle, request, Histories(more), column), tried.tolist(), strict=True))
    for new, other in [one for one in ranked if 2 * one[0] <= rank][:_ADDED]:
        item, name = bundle.names[other]
        found.append(Remedy("history", f"with {name} in the history", new, (item,)))
    return found
