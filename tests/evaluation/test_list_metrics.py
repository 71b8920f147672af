"""Metrics of whole lists and of all scores, by brute force."""

import logging
from itertools import combinations

import numpy as np
import pytest

from conftest import csr, random_csr
from recfusion.core.errors import InputError
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import evaluate
from recfusion.evaluation.list_evaluation import evaluate_lists, evaluate_metrics
from recfusion.evaluation.metrics import parse_metric
from recfusion.models.baselines.user_knn import UserKNN

TRAIN = random_csr(30, 12, 0.3, seed=1)
WHOLE = random_csr(8, 12, 0.5, seed=2).toarray()
ITEMS = [np.flatnonzero(row) for row in WHOLE]
FOLD = Fold(np.arange(8), csr([i[::2].tolist() for i in ITEMS], 12), csr([i[1::2].tolist() or [0] for i in ITEMS], 12))
MODEL = UserKNN(neighbours=5).fit(TRAIN)
LISTS = evaluate(MODEL, FOLD, TRAIN, ("ndcg@4",), shown=range(8), length=4).lists


def test_metrics_of_batches_are_the_same_from_lists() -> None:
    names = ("ndcg@4", "f1@3", "novelty@4", "coverage@4", "popularity@2")
    whole, listed = evaluate(MODEL, FOLD, TRAIN, names), evaluate_lists(LISTS, FOLD, TRAIN, names)
    assert whole.mean() == pytest.approx(listed.mean())
    assert whole.slices == listed.slices
    both = evaluate_metrics(MODEL, FOLD, TRAIN, ("gini@4", *names), shown=[1, 5], length=2)
    assert [name for name in both.mean() if name != "gini@4"] == [*whole.mean()]
    assert both.lists.tolist() == LISTS[[1, 5], :2].tolist()


def test_f1_is_the_harmonic_mean_of_precision_and_recall() -> None:
    found = evaluate(MODEL, FOLD, TRAIN, ("f1@4", "precision@4", "recall@4")).per_user
    p, r = found["precision@4"], found["recall@4"]
    expected = np.divide(2 * p * r, p + r, out=np.zeros(8), where=p + r > 0)
    assert found["f1@4"] == pytest.approx(expected)


def test_diversity_novelty_gini_and_serendipity_by_hand() -> None:
    x, n = TRAIN.toarray(), TRAIN.toarray().sum(0)
    found = evaluate_lists(LISTS, FOLD, TRAIN, ("diversity@4", "novelty@4", "gini@4", "serendipity@4"))
    popular = set(np.argsort(-n, kind="stable")[:4].tolist())
    for row, items in enumerate(LISTS):
        own = items[items >= 0]
        cosines = [x[:, i] @ x[:, j] / np.sqrt(n[i] * n[j]) for i, j in combinations(own, 2)]
        assert found.per_user["diversity@4"][row] == pytest.approx(1 - np.mean(cosines))
        assert found.per_user["novelty@4"][row] == pytest.approx(np.mean(-np.log2(n[own] / 30)))
        held_out = set(FOLD.held_out[[row]].indices.tolist())
        assert found.per_user["serendipity@4"][row] == len((held_out & set(own.tolist())) - popular) / 4
    shown = np.bincount(LISTS[LISTS >= 0], minlength=12)
    assert found.overall["gini@4"] == pytest.approx(np.abs(shown[:, None] - shown[None]).sum() / (2 * 12 * shown.sum()))


def test_auc_is_the_share_of_pairs_in_the_right_order() -> None:
    found = evaluate_metrics(MODEL, FOLD, TRAIN, ("auc", "ndcg@4")).per_user
    scores = MODEL.score(FOLD.history)
    for row in range(8):
        own = FOLD.held_out[[row]].indices
        others = np.setdiff1d(np.arange(12), np.concatenate([own, FOLD.history[[row]].indices]))
        pairs = [
            (scores[row, i] > scores[row, j]) + (scores[row, i] == scores[row, j]) / 2 for i in own for j in others
        ]
        assert found["auc"][row] == pytest.approx(np.mean(pairs))
    with pytest.raises(InputError, match="'auc' without a list length"):
        parse_metric("auc@5")


def test_sampled_metrics_warn_and_equal_exact_ranks_if_all_items_are_drawn(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = evaluate_metrics(MODEL, FOLD, TRAIN, ("sampled_hit_rate@3",)).per_user["sampled_hit_rate@3"]
    assert "Krichene and Rendle" in caplog.text
    scores = MODEL.score(FOLD.history)
    for row in range(8):  # twelve items: all others are drawn
        own = FOLD.held_out[[row]].indices
        others = np.setdiff1d(np.arange(12), np.concatenate([own, FOLD.history[[row]].indices]))
        ranks = [
            1 + (scores[row, others] > scores[row, i]).sum() + (scores[row, others] == scores[row, i]).sum() / 2
            for i in own
        ]
        assert found[row] == pytest.approx(np.mean([rank <= 3 for rank in ranks]))


def test_lists_have_no_auc() -> None:
    with pytest.raises(InputError, match="auc needs the scores"):
        evaluate_lists(LISTS, FOLD, TRAIN, ("auc",))
