"""Where the searches of the linear opponents begin: a grid on the validation users of ML-1M's split 0, and nobody else.

    python scripts/opponent_starts.py

What a fit chooses for itself (xi and a) is chosen by the fit. No test user is scored.
"""

import itertools
from typing import Any

from threadpoolctl import threadpool_limits

import recfusion as rf
from recfusion.data.split import without_test
from recfusion.models.registry import make_model
from recfusion.models.selftune import ndcg

GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "edlae": {"l2": (150, 350, 700), "p": (0.3, 0.45, 0.6)},
    "rdlae": {"l2": (150, 350, 700), "p": (0.3, 0.45, 0.6)},
    "ease-dan": {"l2": (50, 100, 250), "p": (0.55, 0.67, 0.75), "beta": (0.3, 0.5)},
    "ease-pairs": {"l2": (350, 700), "pair_l2": (1e4, 4e4, 1.6e5)},
}


def main() -> None:
    """Print every point of the grids with its NDCG@100, and the best of each model."""
    parts = without_test(rf.split(rf.load("ml-1m"), seed=0))
    with threadpool_limits(1):
        for name, grid in GRIDS.items():
            found: list[tuple[float, dict[str, Any]]] = []
            for point in itertools.product(*grid.values()):
                settings = dict(zip(grid, point, strict=True))
                model = make_model(name, settings).fit(parts.train, parts.valid, rng=0)
                found.append((float(ndcg(model.score, parts.valid).mean()), settings | model.chosen()))
                print(f"{name} {100 * found[-1][0]:.2f} {found[-1][1]}", flush=True)
            print(f"{name} begins at {max(found, key=lambda one: one[0])[1]}", flush=True)


if __name__ == "__main__":
    main()
