"""Find starting points for the searches of the linear opponents, on the validation users of split 0 of ML-1M.

    python scripts/opponent_starts.py

The fit chooses xi and a. No test user is scored.
"""

from typing import Any

from threadpoolctl import threadpool_limits

import recfusion as rf
from recfusion.data.split import without_test
from recfusion.models.registry import make_model
from recfusion.models.self_tuning import ndcg

GRIDS: dict[str, list[dict[str, float]]] = {
    "edlae": [{"l2": l2, "p": p} for l2, p in ((150, 0.5), (350, 0.3), (350, 0.45), (350, 0.6), (700, 0.45))],
    "rdlae": [{"l2": l2, "p": p} for l2, p in ((150, 0.5), (350, 0.3), (350, 0.45), (350, 0.6), (700, 0.45))],
    "ease-dan": [
        {"l2": l2, "p": p, "beta": beta}
        for l2, p, beta in ((100, 0.6, 0.5), (100, 0.67, 0.5), (100, 0.75, 0.5), (250, 0.67, 0.5), (100, 0.67, 0.3))
    ],
    "ease-pairs": [{"l2": l2, "pair_l2": pair} for l2, pair in ((500, 1e4), (500, 4e4), (500, 1.6e5))],
}


def main() -> None:
    """Print each point with its NDCG@100, and the best point of each model."""
    parts = without_test(rf.split(rf.load("ml-1m"), seed=0))
    with threadpool_limits(1):
        for name, grid in GRIDS.items():
            found: list[tuple[float, dict[str, Any]]] = []
            for settings in grid:
                model = make_model(name, settings).fit(parts.train, parts.valid, rng=0)
                found.append((float(ndcg(model.score, parts.valid).mean()), settings | model.chosen()))
                print(f"{name} {100 * found[-1][0]:.2f} {found[-1][1]}", flush=True)
            print(f"{name} starts at {max(found, key=lambda one: one[0])[1]}", flush=True)


if __name__ == "__main__":
    main()
