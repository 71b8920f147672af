"""Evaluation in batches equals evaluation at once."""

import numpy as np
import pytest

from conftest import random_csr
from recfusion.core.arrays import Csr, FloatArray
from recfusion.data.interactions import Interactions
from recfusion.data.split import Fold, split
from recfusion.evaluation import topk
from recfusion.evaluation.evaluate import evaluate

METRICS = ("ndcg@5", "recall@3", "coverage@2", "popularity@4")


class Linear:
    """Scores through a fixed matrix."""

    def __init__(self, n_items: int) -> None:
        self.weights = np.random.default_rng(1).normal(size=(n_items, n_items)).astype(np.float32)

    def score(self, history: Csr) -> FloatArray:
        return np.asarray(history @ self.weights)


@pytest.mark.parametrize("threads", [1, 3])
def test_small_batches_give_the_same_values(
    groups: Interactions, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    parts = split(groups)
    whole = evaluate(Linear(40), parts.test, parts.train, METRICS)
    monkeypatch.setattr(topk, "CELLS_PER_BATCH", 80)  # two users at once
    pieces = evaluate(Linear(40), parts.test, parts.train, METRICS, threads=threads)
    for name in ("ndcg@5", "recall@3", "popularity@4"):
        assert whole.per_user[name].tolist() == pieces.per_user[name].tolist()
    assert whole.overall == pieces.overall


def test_coverage_counts_the_items_that_somebody_is_shown() -> None:
    class Same:
        def score(self, history: Csr) -> FloatArray:
            return np.tile(np.arange(10, dtype=np.float32), (history.shape[0], 1))

    history = random_csr(6, 10, 0.0, 0)  # user u has item u
    held_out = random_csr(6, 10, 0.0, 0)
    fold = Fold(np.arange(6), history, held_out)
    assert evaluate(Same(), fold, history, ("coverage@2",)).overall == {"coverage@2": 0.2}


def test_means_are_over_users(groups: Interactions) -> None:
    parts = split(groups)
    result = evaluate(Linear(40), parts.test, parts.train, METRICS)
    assert result.mean()["ndcg@5"] == pytest.approx(result.per_user["ndcg@5"].mean())
    assert result.users.tolist() == parts.test.users.tolist()
