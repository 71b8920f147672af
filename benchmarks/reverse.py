"""What more reverse steps and higher temperatures do to the lists of ML-100K's test users.

    python benchmarks/reverse.py

Prints the table in docs/thinning.md: one linear denoiser, split and seed 0, NDCG@100 and how many distinct items the
lists of 20 hold. Drawn lists are drawn ten times, and the mean counts. ML-100K must be in RECFUSION_DATA or the cache.
It takes less than a minute.
"""

import statistics

from threadpoolctl import threadpool_limits

import recfusion as rf
from recfusion.models.thinning.mixture import Thinning

STEPS = (1, 2, 4)
TEMPERATURES = (0.0, 0.5, 1.0, 2.0)
DRAWS = 10


def main() -> None:
    """Fit once, and judge every pair of options."""
    parts = rf.split(rf.load("ml-100k"), seed=0)
    model = Thinning(members="thinning-linear").fit(parts.train, parts.valid, rng=0)
    n_items = parts.train.shape[1]
    print(f"{parts.test.history.shape[0]} test users, {n_items} items")
    print("| temperature |" + "".join(f" {steps} step{'s' * (steps > 1)} |" for steps in STEPS))
    print("|---|" + "---|" * len(STEPS))
    for temperature in TEMPERATURES:
        cells = []
        for steps in STEPS:
            model.steps, model.temperature = steps, temperature
            judged = []
            for model.draw in range(DRAWS if temperature else 1):
                found = rf.evaluate(model, parts.test, parts.train, ("ndcg@100", "coverage@20"), threads=1).mean()
                judged.append((100 * found["ndcg@100"], 100 * found["coverage@20"]))
            ndcg, share = (statistics.mean(each) for each in zip(*judged, strict=True))
            cells.append(f" {ndcg:.1f}, {share * n_items / 100:.0f} items ({share:.0f} %) |")
        print(f"| {temperature:g} |" + "".join(cells))


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
