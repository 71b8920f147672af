"""Your own model, from the class to recommendations: check, compare, tune, save and load it.

It takes about half a minute on the movie ratings that come with the package:

    python examples/own_model.py

The same file works in commands: `recfusion compare --models ease,mine=examples/own_model.py:ItemKNN --splits 3`.
"""
# ruff: noqa: T201  (an example prints)

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

import recfusion as rf
from recfusion.testing import check_recommender


@dataclass
class ItemKNN(rf.Recommender):
    """Scores items by their most similar items in the history.

    The similarity of i and j is common_ij / ((n_i n_j)^power + shrink): with power 0.5 a cosine, which `shrink` pulls
    towards 0 if only a few users have both items.
    """

    power: float = rf.setting(0.5, "how much popularity reduces similarity", at_least=0, search=(0.2, 0.8))
    shrink: float = rf.setting(10.0, "reduces similarity of few users", at_least=0.01, search=(1.0, 100.0), log=True)
    neighbours: int = rf.setting(200, "similar items kept for each item", at_least=1, search=(20, 1000), log=True)
    weights_: NDArray[np.float32] = rf.learned()  # (items, items)

    def fit(self, train: csr_array, valid: rf.Fold | None = None, *, rng: object = None) -> Self:
        common = (train.T @ train).toarray()
        n = np.diag(common).copy()
        np.fill_diagonal(common, 0)
        weights = common / (np.outer(n, n) ** self.power + self.shrink)
        if self.neighbours < len(n):
            weights[weights < np.partition(weights, -self.neighbours, axis=0)[-self.neighbours]] = 0
        self.weights_ = weights.astype(np.float32)
        return self

    def score(self, history: csr_array) -> NDArray[np.float32]:
        return np.asarray(history @ self.weights_, np.float32)


def main() -> None:
    check_recommender(ItemKNN())  # raises an error with one sentence if something is wrong

    data = rf.load("ml-latest-small")
    print(rf.compare(data, {"mine": ItemKNN(), "ease": rf.EASE(l2=200.0)}, splits=3))

    tuned = rf.tune(ItemKNN, data, trials=10)
    print("Best settings of ten trials:", tuned.settings)

    bundle = rf.train(ItemKNN(**tuned.settings), data, all_users=True)
    with TemporaryDirectory() as folder:
        path = bundle.save(Path(folder) / "my-model")
        again = rf.Bundle.load(path, trust=[ItemKNN])  # a folder alone never makes recfusion import code
    print(rf.recommend(again, {"somebody new": [318, 356, 296]}, k=5).to_frame())


if __name__ == "__main__":
    main()
