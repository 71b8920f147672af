"""Filters and re-ranking weights in an evaluation: its lists are made as those of a service."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recfusion.core.arrays import FloatArray, IntArray
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.options import SplitPlan
from recfusion.data.protocol import Protocol
from recfusion.data.split import Fold
from recfusion.experiments.paired_tests import BySeed, PairedTest, make_draws, paired_tests
from recfusion.inference.bundle import Bundle
from recfusion.inference.histories import Histories
from recfusion.inference.lists import ListMaker
from recfusion.inference.request import Filters, Reranking
from recfusion.models.registry import entry

WITHOUT = "without these rules"  # in tests of their costs


def rules_document(filters: Filters | None, reranking: Reranking | None) -> dict[str, Any]:
    """Return the rules as plain JSON data for a protocol card; nothing if there are none."""
    given = [one.model_dump(mode="json", exclude_defaults=True) for one in (filters, reranking) if one is not None]
    found = {name: value for one in given for name, value in one.items()}
    if {"again", "again_by"} & found.keys():
        raise InputError("Test users are judged by products that they do not have yet: leave out --again.", "again")
    return found


def rule_maker(bundle: Bundle, rules: Mapping[str, Any]) -> ListMaker:
    """Return what makes the lists of a model under the rules of a protocol card."""
    own = {name: value for name, value in rules.items() if name in Filters.model_fields}
    other = {name: value for name, value in rules.items() if name not in own}
    return ListMaker.of(bundle, Filters(**own), Reranking(**other))


def check_rules(data: Interactions, rules: Mapping[str, Any]) -> None:
    """Raise if the rules do not fit the item table, before any model is fitted."""
    kind = entry("popularity")
    model = kind.make().fit(data.matrix)
    rule_maker(Bundle.of(kind, model, data, data.matrix, Protocol.of(data, SplitPlan(), ()), seed=0), rules)


def fold_lists(maker: ListMaker) -> Callable[[Fold, int], IntArray]:
    """Return a function that makes the lists of a fold's users, (users, k); an evaluation takes it."""
    return lambda part, k: lists_of(maker, part, k)


def lists_of(maker: ListMaker, part: Fold, k: int, scores: FloatArray | None = None) -> IntArray:
    """Return the lists of a fold's users, (users, k), without the items that they dislike or returned."""
    return maker.lists(Histories(part.history, part.extra, returned=part.disliked), k, scores=scores).items


def rule_costs(by_model: Mapping[str, BySeed], metrics: Sequence[str]) -> tuple[PairedTest, ...]:
    """Return each model's metrics with the rules minus those without them, on the same users."""
    found = []
    for label, its in by_model.items():
        if all(one.plain for one in its.values()):
            plain = {seed: one.model_copy(update={"test": one.plain}) for seed, one in its.items()}
            pair: dict[str, BySeed] = {label: its, WITHOUT: plain}
            draws = make_draws(pair, metrics)
            found += [test for name in metrics for test in paired_tests(pair, name, draws, [(label, WITHOUT)])]
    return tuple(found)


def cost_text(difference: float, ci95: tuple[float, float] | None, metric: str) -> str:
    """Return what rules cost in points of a metric, such as "cost 1.20 points of ndcg@100 (0.70 to 1.90)"."""
    verb, sign = ("cost", -100) if difference <= 0 else ("gain", 100)
    ends = sorted(sign * end for end in ci95 or ())
    interval = f" ({ends[0]:.2f} to {ends[1]:.2f})" if ends else ""
    return f"{verb} {sign * difference:.2f} points of {metric}{interval}"
