"""Metrics on lists whose values are worked out by hand."""

import math

import numpy as np
import pytest

from conftest import csr
from recfusion.core.errors import InputError
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import evaluate
from recfusion.evaluation.metrics import (
    DEFAULT_METRICS,
    MAIN_METRIC,
    METRICS,
    Metric,
    is_descriptive,
    judge,
    parse_metric,
    per_user,
)
from recfusion.models.baselines.popularity import Popularity

# One user, held out 1, 3, 5; the list hits at ranks 1 and 3 of 4. Popularity of item i is i / 10.
LISTS = judge(np.array([[3, 0, 5, 2]]), csr([[1, 3, 5]], 7), np.arange(7) / 10)
LOG3 = math.log2(3)

BY_HAND = {
    "recall@4": 2 / 3,
    "recall@2": 1 / 3,
    "calibrated_recall@4": 2 / 3,
    "calibrated_recall@2": 1 / 2,
    "calibrated_recall@1": 1.0,
    "precision@4": 2 / 4,
    "precision@10": 2 / 10,
    "hit_rate@4": 1.0,
    "mrr@4": 1.0,
    "ndcg@4": (1 + 1 / 2) / (1 + 1 / LOG3 + 1 / 2),
    "ndcg@2": 1 / (1 + 1 / LOG3),
    "ndcg@100": (1 + 1 / 2) / (1 + 1 / LOG3 + 1 / 2),
    "map@4": (1 + 2 / 3) / 3,
    "map@2": 1 / 2,
    "popularity@2": (0.3 + 0.0) / 2,
    "popularity@4": (0.3 + 0.0 + 0.5 + 0.2) / 4,
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_metric_has_the_value_worked_out_by_hand(name: str) -> None:
    assert per_user(LISTS, [name])[name].tolist() == pytest.approx([BY_HAND[name]])


@pytest.mark.parametrize("kind", ["calibrated_recall", "recall", "ndcg", "map", "precision", "hit_rate", "mrr"])
def test_a_perfect_list_has_one_and_an_empty_one_zero(kind: str) -> None:
    held_out = csr([[0, 1], [0, 1]], 4)
    lists = judge(np.array([[1, 0], [-1, -1]]), held_out, np.ones(4))
    assert per_user(lists, [f"{kind}@2"])[f"{kind}@2"].tolist() == [1, 0]


def test_the_first_hit_decides_the_reciprocal_rank() -> None:
    lists = judge(np.array([[2, 0, 1]]), csr([[1]], 3), np.ones(3))
    assert per_user(lists, ["mrr@3", "mrr@2"])["mrr@3"].tolist() == pytest.approx([1 / 3])
    assert per_user(lists, ["mrr@2"])["mrr@2"].tolist() == [0]


def test_a_short_list_s_popularity_is_the_mean_of_what_it_holds() -> None:
    lists = judge(np.array([[1, -1, -1]]), csr([[0]], 3), np.array([0.1, 0.6, 0.2]))
    assert per_user(lists, ["popularity@3"])["popularity@3"].tolist() == pytest.approx([0.6])


@pytest.mark.parametrize("name", ["ndcg", "ndcg@", "ndcg@0", "ndcg@x", "ndcg@-5"])
def test_a_metric_without_a_list_length_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="ndcg@20"):
        parse_metric(name)


def test_an_unknown_metric_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"Unknown metric 'speed@5'.*coverage@K"):
        parse_metric("speed@5")


def test_one_entry_adds_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "misses", Metric("K - sum(h)", lambda lists, k: k - lists.hits[:, :k].sum(1)))
    monkeypatch.setitem(METRICS, "unused", Metric("items in no list", overall=lambda seen: float((~seen).sum())))
    train = csr([[0, 1], [0, 2]], 4)
    fold = Fold(np.arange(2), train, csr([[3], [1]], 4))
    found = evaluate(Popularity().fit(train), fold, train, ["misses@1", "unused@1"])
    assert found.per_user["misses@1"].tolist() == [1, 0]
    assert found.overall == {"unused@1": 2.0}
    assert not is_descriptive("misses@1")
    with pytest.raises(InputError, match=r"Unknown metric 'speed@5'.*misses@K, unused@K"):
        parse_metric("speed@5")


def test_every_metric_has_a_formula_and_one_way_to_be_computed() -> None:
    for metric in METRICS.values():
        assert metric.formula
        ways = (metric.per_user, metric.overall, metric.of_users, metric.of_lists, metric.of_scores)
        assert sum(way is not None for way in ways) == 1
    assert MAIN_METRIC in DEFAULT_METRICS
    assert is_descriptive("coverage@20")
    assert not is_descriptive("a metric of an older version@3")
