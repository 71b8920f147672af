"""Models get the signals that they read, and dislikes are masked for all."""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy.sparse import csr_array

from conftest import csr
from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.rng import RngLike
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.evaluation.evaluate import evaluate
from recfusion.evaluation.scoring import read_by, scores
from recfusion.evaluation.topk import top_k
from recfusion.models.base import Recommender

DISLIKED = csr_array(np.array([[0, 0, 2, 0]], np.float32))
EXTRA = Extra(grades=csr_array(np.array([[5, 0, 0, 0]], np.float32)), disliked=DISLIKED)


@dataclass
class Plain(Recommender):
    """Scores 1, 2, 3, 4, whatever it is shown; its `score` has no keyword."""

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        return self

    def score(self, history: Csr) -> FloatArray:
        return np.tile(np.arange(1, 5, dtype=np.float32), (history.shape[0], 1))


@dataclass
class Grades(Recommender):
    """Scores by the sum of the grades that it is shown."""

    reads: ClassVar[frozenset[Signal]] = frozenset({"grades"})

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, extra: Extra | None = None) -> Self:
        return self

    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        total = 0 if extra is None or extra.grades is None else float(extra.grades.sum())
        return np.full(history.shape, total, np.float32)


def test_a_plain_model_never_gets_the_keyword() -> None:
    assert read_by(Plain(), EXTRA) is None
    assert scores(Plain(), csr([[0]], 4), EXTRA).tolist() == [[1, 2, 3, 4]]


def test_a_reading_model_gets_what_it_reads_and_the_plain_form_where_nothing_is_used() -> None:
    assert scores(Grades(), csr([[0]], 4), EXTRA)[0, 0] == 5
    assert scores(Grades(), csr([[0]], 4))[0, 0] == 0
    assert scores(Grades(), csr([[0]], 4), Extra(times=DISLIKED))[0, 0] == 0


def test_what_was_disliked_is_in_no_list() -> None:
    items, _ = top_k(Plain().score(csr([[0]], 4)), csr([[0]], 4), 4, DISLIKED)
    assert items.tolist() == [[3, 1, -1, -1]]


def test_every_model_is_judged_with_the_mask() -> None:
    history, held_out = csr([[0]], 4), csr([[1]], 4)
    users = np.array([0])
    train = csr([[0, 1]], 4)
    bare = evaluate(Plain(), Fold(users, history, held_out), train, ("recall@2",), threads=1)
    masked = evaluate(Plain(), Fold(users, history, held_out, EXTRA), train, ("recall@2",), threads=1)
    assert bare.mean()["recall@2"] == 0  # 3, 2 are listed first
    assert masked.mean()["recall@2"] == 1
