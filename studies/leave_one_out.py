"""Whether leave-one-user-out scores with fixed penalties choose other settings than full refits without each user.

    python studies/leave_one_out.py --data ml-100k --users 150 --out studies/results/leave-one-out-ml-100k.json

The closed form of `thinning-linear` (src/recfusion/models/leave_one_out.py) keeps what depends on the counts of all
users as it is: penalties, user weights and the division by popularity. A full refit leaves the user out of these too.
Both score the same left-out training users for nine penalties and six powers of popularity.
"""

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import recfusion as rf
from recfusion.core.arrays import Csr, FloatArray
from recfusion.core.files import write_json
from recfusion.data.split import Fold
from recfusion.evaluation.metrics import Values
from recfusion.models.leave_one_out import LeftOut, left_out
from recfusion.models.linear.gram import Grams, user_weights
from recfusion.models.self_tuning import POWERS, ndcg_of, scalings
from recfusion.models.thinning.linear import solve, start_l2

NU, B = 0.318, 0.5  # the defaults
FACTORS, KAPPAS = (1 / 3, 1.0, 3.0), (0.4, 0.876, 1.5)


def closed_form(train: Csr, fold: Fold, settings: dict[str, float], b: float = B) -> FloatArray:
    """Return scores (users, items) without each user, with fixed penalties."""
    weights, diagonal = solve(Grams(train).copy(b), **settings)
    return LeftOut(train, fold, user_weights(train, b), weights, diagonal).scores(slice(None))


def without(train: Csr, user: int) -> Csr:
    """Return the training matrix without one user."""
    return train[np.flatnonzero(np.arange(train.shape[0]) != user)]


def refits(train: Csr, fold: Fold, settings: dict[str, float], b: float = B) -> FloatArray:
    """Return scores (users, items) of a fit without each user."""
    rows = []
    for row, user in enumerate(fold.users.tolist()):
        weights, _ = solve(Grams(without(train, user)).copy(b), **settings)
        rows.append(np.asarray(fold.history[[row]] @ weights))
    return np.concatenate(rows)


def mean_ndcg(scores: FloatArray, scales: FloatArray, fold: Fold) -> Values:
    """Return the mean NDCG@100 of scores (users, items) times each scale (powers, users or 1, items), (powers,)."""

    def scaled(users: slice) -> Iterator[FloatArray]:
        yield from (scores[users] * (scale if len(scale) == 1 else scale[users]) for scale in scales)

    return ndcg_of(scaled, fold).mean(1)


def compare(train: Csr, fold: Fold) -> dict[str, Any]:
    """Return what both ways choose, and how far apart their scores and their NDCG@100 are."""
    grid = [{"l2": start_l2(train) * f, "nu": NU, "kappa": k} for f, k in product(FACTORS, KAPPAS)]
    usual = scalings(train, POWERS)  # (powers, items)
    own = np.stack([scalings(without(train, user), POWERS) for user in fold.users.tolist()], axis=1)
    ndcg: dict[str, list[Values]] = {"fixed": [], "refit": []}
    apart, spread = 0.0, 0.0
    for settings in grid:
        fixed, refit = closed_form(train, fold, settings), refits(train, fold, settings)
        asked = fold.history.toarray() == 0
        apart = max(apart, float(np.abs(fixed - refit)[asked].max()))
        spread = max(spread, float(refit[asked].std()))
        ndcg["fixed"].append(mean_ndcg(fixed, usual[:, None], fold))
        ndcg["refit"].append(mean_ndcg(refit, own, fold))
    means = {way: np.stack(values) for way, values in ndcg.items()}  # (grid, powers)
    best = {way: np.unravel_index(int(values.argmax()), values.shape) for way, values in means.items()}
    chosen = {way: {**grid[int(at[0])], "c": POWERS[int(at[1])]} for way, at in best.items()}
    difference = np.abs(means["fixed"] - means["refit"])
    return {
        "users": len(fold.users),
        "settings": difference.size,
        "largest difference of a score": apart,
        "standard deviation of scores": spread,
        "largest difference of NDCG@100 (points)": 100 * float(difference.max()),
        "mean difference of NDCG@100 (points)": 100 * float(difference.mean()),
        "chosen": chosen,
        "NDCG@100 by refits of both choices (points)": {
            way: 100 * float(means["refit"][best[way]]) for way in ("fixed", "refit")
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--users", type=int, default=150, help="left-out training users")
    parser.add_argument("--seeds", type=int, default=3, help="splits")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data = rf.load(given.data)
    found = []
    for seed in range(given.seeds):
        train = rf.split(data, seed=seed).train
        found.append(compare(train, left_out(train, given.users, np.random.default_rng(seed))))
        print(found[-1], flush=True)
    if given.out is not None:
        write_json(given.out, {"data": given.data, "splits": found})


if __name__ == "__main__":
    main()
