"""Lists of the library `implicit` for an exported split; see judge_another_library.md. Needs only implicit."""

import csv
import sys
import time
from pathlib import Path

import numpy as np
from implicit.als import AlternatingLeastSquares
from scipy.sparse import csr_matrix

K = 100


def read(path: Path) -> list[tuple[str, str]]:
    """Return the pairs of user and item of a file."""
    with path.open(newline="") as file:
        return [(row["user"], row["item"]) for row in csv.DictReader(file)]


def main(folder: Path, out: Path) -> None:
    train, shown = read(folder / "train.csv"), read(folder / "test_history.csv")
    items = sorted({item for _, item in train + shown})
    column = {item: n for n, item in enumerate(items)}

    def matrix(pairs: list[tuple[str, str]]) -> tuple[list[str], csr_matrix]:
        users = sorted({user for user, _ in pairs})
        row = {user: n for n, user in enumerate(users)}
        places = ([row[user] for user, _ in pairs], [column[item] for _, item in pairs])
        return users, csr_matrix((np.ones(len(pairs), np.float32), places), (len(users), len(items)))

    _, learned = matrix(train)
    users, histories = matrix(shown)
    began = time.perf_counter()
    model = AlternatingLeastSquares(factors=64, regularization=0.05, alpha=10, iterations=20, random_state=0)
    model.fit(learned, show_progress=False)
    seconds = time.perf_counter() - began
    # `recalculate_user` folds in the histories of users that training has not seen.
    found, scores = model.recommend(np.arange(len(users)), histories, N=K, recalculate_user=True)
    with out.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["user", "item", "score"])
        for user, its_items, its_scores in zip(users, found, scores, strict=True):
            rows.writerows((user, items[n], score) for n, score in zip(its_items, its_scores, strict=True))
    print(f"Fitted in {seconds:.1f} s; lists of {len(users):,} users are in {out}")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
