"""Evaluation in batches equals evaluation at once."""

import numpy as np
import pytest

from conftest import csr, random_csr
from recfusion.core.arrays import Csr, FloatArray
from recfusion.data.interactions import Interactions
from recfusion.data.split import Fold, split
from recfusion.evaluation import topk
from recfusion.evaluation.evaluate import evaluate, map_batches

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
    assert whole.slices == pieces.slices


@pytest.mark.parametrize("cells", [80, 1 << 20])
def test_every_user_is_scored_once_and_the_lists_asked_for_are_kept(
    groups: Interactions, monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    monkeypatch.setattr(topk, "CELLS_PER_BATCH", cells)
    rows: list[int] = []

    class Spy(Linear):
        def score(self, history: Csr) -> FloatArray:
            rows.append(history.shape[0])
            return super().score(history)

    parts = split(groups)
    n_users = len(parts.test.users)
    shown = [n_users - 1, 0, 3]
    found = evaluate(Spy(40), parts.test, parts.train, ("recall@2",), shown=shown, length=7)
    assert sum(rows) == n_users
    wanted, _ = topk.top_k(Linear(40).score(parts.test.history), parts.test.history, 7)
    assert found.lists.tolist() == wanted[shown].tolist()
    short = evaluate(Linear(40), parts.test, parts.train, ("recall@20",), shown=shown, length=7)
    assert short.lists.tolist() == found.lists.tolist()


def test_a_list_that_ends_early_is_kept_with_its_end() -> None:
    fold = Fold(np.arange(2), random_csr(2, 3, 0.0, 0), random_csr(2, 3, 0.0, 0))
    found = evaluate(Linear(3), fold, fold.history, ("recall@2",), shown=[1], length=5)
    assert found.lists.shape == (1, 5)
    assert sorted(found.lists[0, :2].tolist()) == [0, 2]
    assert found.lists[0, 2:].tolist() == [-1, -1, -1]


def test_an_evaluation_shows_itself_and_becomes_a_frame(groups: Interactions) -> None:
    parts = split(groups)
    result = evaluate(Linear(40), parts.test, parts.train, METRICS)
    frame = result.to_frame()
    assert frame.columns == ["user", "ndcg@5", "recall@3", "popularity@4"]
    assert frame["recall@3"].to_list() == result.per_user["recall@3"].tolist()
    assert repr(result).startswith(f"Evaluation(8 users: ndcg@5 {100 * result.mean()['ndcg@5']:.2f}, recall@3 ")
    assert f"<td>coverage@2</td><td>{100 * result.overall['coverage@2']:.2f}</td>" in result._repr_html_()


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


def test_popularity_is_the_share_of_training_users() -> None:
    class Same:
        def score(self, history: Csr) -> FloatArray:
            return np.tile(np.array([3, 2, 1], np.float32), (history.shape[0], 1))

    train = csr([[0], [0], [0, 1], [0]], 3)
    fold = Fold(np.arange(2), csr([[2], [2]], 3), csr([[0], [1]], 3))
    found = evaluate(Same(), fold, train, ("popularity@1", "popularity@2")).per_user
    assert {name: values.tolist() for name, values in found.items()} == {
        "popularity@1": [1.0, 1.0],
        "popularity@2": [0.625, 0.625],  # of items that all four have, and one of them
    }


@pytest.mark.parametrize("threads", [1, 3])
def test_batches_come_in_order_and_few_are_begun_ahead(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(topk, "CELLS_PER_BATCH", 20)  # two users of ten items
    begun: list[int] = []

    def run(rows: slice) -> int:
        begun.append(rows.start)
        return rows.start

    found = map_batches(run, random_csr(21, 10, 0.3, seed=0), threads)
    assert [next(found), next(found)] == [0, 2]
    assert len(begun) <= 2 + threads
    assert list(found) == list(range(4, 21, 2))
    assert sorted(begun) == list(range(0, 21, 2))
