"""What shops ask about lists: what rules cost, which products are shown, and the gain over bestsellers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.data.column_roles import Role
from recfusion.data.options import Source
from recfusion.data.split import Fold, Split
from recfusion.evaluation.evaluate import Evaluation, evaluate
from recfusion.evaluation.list_metrics import gini_index
from recfusion.evaluation.metrics import MAIN_METRIC, METRICS, Values, judge, parse_metric
from recfusion.evaluation.significance import Difference, bootstrap_means, paired_difference
from recfusion.experiments.paired_tests import paired_differences
from recfusion.experiments.rules import cost_text, lists_of, rules_document
from recfusion.experiments.train import rebuild_split
from recfusion.inference.bundle import Bundle
from recfusion.inference.lists import ListMaker
from recfusion.inference.new_items import without_new
from recfusion.inference.request import Filters, Reranking


@dataclass(frozen=True)
class Shown:
    """Which products the lists of the test users show."""

    items: int  # products of the model
    listed: int  # products in some list
    gini: float  # of the number of lists per product: 0 if all are in equally many, near 1 if few are in all
    sold_out: float | None  # share of the places with stock <= 0; None without a column of stock

    def sentence(self, k: int) -> str:
        never = self.items - self.listed
        found = (
            f"Lists of {k} show {self.listed:,} of {self.items:,} products ({self.listed / max(1, self.items):.0%}), "
        )
        found += f"{never:,} never; Gini coefficient {self.gini:.2f}"
        return f"{found}." if self.sold_out is None else f"{found}; {self.sold_out:.1%} of the places are sold out."


@dataclass(frozen=True)
class Gain:
    """Held-out purchases in the first places of the lists of each user, against lists of bestsellers."""

    hits: float
    popular_hits: float
    percent: float | None  # how many more; None if bestsellers have none
    percent_ci95: tuple[float, float] | None
    more: Difference  # hits minus those of bestsellers
    money: Difference | None  # per user, if the item table has prices

    def sentence(self, k: int) -> str:
        found = f"Lists of {k} hold {self.hits:.2f} of the withheld items per user, bestsellers {self.popular_hits:.2f}"
        if self.percent is not None and self.percent_ci95 is not None:
            low, high = self.percent_ci95
            found += f": {self.percent:+.0f} % ({low:+.0f} to {high:+.0f} %)"
        elif self.more.ci95 is not None:
            found += f": {self.more.difference:+.2f} ({self.more.ci95[0]:+.2f} to {self.more.ci95[1]:+.2f})"
        if self.money is not None and self.money.ci95 is not None:
            low, high = self.money.ci95
            found += f", or {self.money.difference:+.2f} in prices per user ({low:+.2f} to {high:+.2f})"
        return f"{found}."


@dataclass(frozen=True)
class ListReport:
    """A model's lists without and with rules, on the test users of its split."""

    k: int
    users: int
    shown: Shown
    gain: Gain
    plain: dict[str, float]  # means of the metrics without rules
    ruled: dict[str, float] | None = None  # with rules, if there are some
    costs: dict[str, Difference] | None = None  # with minus without
    ruled_shown: Shown | None = None

    def cost_sentence(self, metric: str) -> str:
        """Return what the rules cost in points of a metric."""
        assert self.costs is not None
        return f"These rules {cost_text(self.costs[metric].difference, self.costs[metric].ci95, metric)}."


def report_lists(
    bundle: Bundle,
    source: Source | None = None,
    *,
    filters: Filters | None = None,
    reranking: Reranking | None = None,
    k: int = 10,
) -> ListReport:
    """Return how the lists of a saved model do on the test users of its split, without and with rules."""
    parts, bundle = rebuild_split(bundle, source), without_new(bundle)
    metrics = [name for name in bundle.protocol.metrics if METRICS[parse_metric(name)[0]].per_user is not None]
    metrics = metrics or [MAIN_METRIC]
    plain = _evaluate(ListMaker.of(bundle), parts, metrics, k)
    popular = _evaluate(ListMaker.of(bundle, filters), parts, metrics, k, popular=True)
    ruled = None
    if rules_document(filters, reranking):
        ruled = _evaluate(ListMaker.of(bundle, filters, reranking), parts, metrics, k)
    test, prices = parts.test, prices_of(bundle.items, bundle.roles)
    found = ListReport(
        k=k,
        users=len(test.users),
        shown=shown_products(plain.lists, bundle.items, bundle.roles),
        gain=gain_over(test.users, test.held_out, (ruled or plain).lists, popular.lists, prices),
        plain=plain.mean(),
    )
    if ruled is None:
        return found
    return replace(
        found,
        ruled=ruled.mean(),
        costs=paired_differences(test.users, ruled.per_user, plain.per_user),
        ruled_shown=shown_products(ruled.lists, bundle.items, bundle.roles),
    )


def _evaluate(maker: ListMaker, parts: Split, metrics: list[str], k: int, *, popular: bool = False) -> Evaluation:
    """Evaluate the lists of the test users; with `popular`, those of bestsellers under the same filters."""

    def make_lists(part: Fold, longest: int) -> IntArray:
        scores: FloatArray | None = np.tile(maker.bundle.popularity, (len(part.users), 1)) if popular else None
        return lists_of(maker, part, longest, scores)

    asked = (maker.bundle.model, parts.test, parts.train, metrics)
    return evaluate(*asked, shown=range(len(parts.test.users)), length=k, make_lists=make_lists)


def shown_products(lists: IntArray, items: pl.DataFrame, roles: Mapping[Role, str]) -> Shown:
    """Return which products some lists (users, k) show; -1 is an empty place."""
    places = lists[lists >= 0]
    counts = np.bincount(places, minlength=len(items))
    sold_out = None
    if (stock := roles.get("stock")) is not None:
        gone = (items[stock].cast(pl.Float64) <= 0).fill_null(False).to_numpy()
        sold_out = float(np.mean(gone[places])) if len(places) else 0.0
    return Shown(len(counts), int(np.count_nonzero(counts)), gini_index(counts), sold_out)


def prices_of(items: pl.DataFrame, roles: Mapping[Role, str]) -> Values | None:
    """Return the price of each item, 0 without one; None if the table has no prices."""
    price = roles.get("price")
    return None if price is None else items[price].cast(pl.Float64).fill_null(0).fill_nan(0).to_numpy()


def gain_over(users: IntArray, held_out: Csr, items: IntArray, popular: IntArray, prices: Values | None) -> Gain:
    """Return the gain of lists (users, k) over those of bestsellers, by the held-out items of the same users."""
    lists = [judge(own, held_out, np.zeros(held_out.shape[1])).hits for own in (items, popular)]
    hits = np.stack([one.sum(axis=1).astype(np.float64) for one in lists], axis=1)
    drawn = bootstrap_means(users, hits)
    model, best = (float(column.mean()) for column in hits.T)
    percent, interval = None, None
    if best > 0 and not np.isnan(drawn).any() and (drawn[:, 1] > 0).all():
        percent = 100 * (model / best - 1)
        low, high = np.quantile(100 * (drawn[:, 0] / drawn[:, 1] - 1), [0.025, 0.975])
        interval = (float(low), float(high))
    money = None
    if prices is not None:
        own, theirs = (
            (hit * prices[np.maximum(its, 0)]).sum(1) for hit, its in zip(lists, (items, popular), strict=True)
        )
        money = paired_differences(users, {"money": own}, {"money": theirs})["money"]
    more = paired_difference(hits[:, 0], hits[:, 1], drawn[:, 0], drawn[:, 1])
    return Gain(model, best, percent, interval, more, money)
