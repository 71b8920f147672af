"""Fit implicit's ALS or cosine neighbours on a given split, to compare recfusion with them.

Runs in a virtual environment of its own (`pip install implicit==0.7.3`) and does not import recfusion: a split comes in
as an .npz file (see `scale.py`), and lists of 100 items for validation and test users go out, for each setting tried;
the caller judges both sides' lists alike.

    implicit_peer.py als|cosine SPLIT.npz LISTS.npz
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
from implicit.als import AlternatingLeastSquares
from implicit.nearest_neighbours import CosineRecommender
from scipy.sparse import csr_matrix

# settings tried on the same validation users: as many as our models' searches have trials, or all that make sense
GRIDS: dict[str, list[dict[str, float]]] = {
    "als": [{"regularization": r, "alpha": a} for a in (1.0, 4.0, 16.0) for r in (0.01, 1.0, 10.0)],
    "cosine": [{"K": k} for k in (20, 50, 100, 200, 400)],
}


def main() -> None:
    kind, split, lists = sys.argv[1:4]
    with np.load(split) as file:
        shape = file["shape"]

        def matrix(name: str, rows: int) -> csr_matrix:
            data = np.ones(len(file[f"{name}_indices"]), np.float32)
            return csr_matrix((data, file[f"{name}_indices"], file[f"{name}_indptr"]), shape=(rows, int(shape[3])))

        train, valid, test = (matrix(name, int(shape[place])) for place, name in enumerate(("train", "valid", "test")))
    found, seconds, cpu_seconds = {}, [], []
    for number, settings in enumerate(GRIDS[kind]):
        began, cpu = time.perf_counter(), time.process_time()
        if kind == "als":
            model = AlternatingLeastSquares(factors=64, iterations=15, random_state=0, num_threads=1, **settings)
        else:
            model = CosineRecommender(num_threads=1, **settings)
        model.fit(train, show_progress=False)
        seconds.append(time.perf_counter() - began)
        cpu_seconds.append(time.process_time() - cpu)
        for name, users in (("valid", valid), ("test", test)):
            ids, _ = model.recommend(
                np.arange(users.shape[0]), users, N=100, filter_already_liked_items=True, recalculate_user=kind == "als"
            )
            found[f"{name}_{number}"] = ids
    np.savez(lists, **found)
    status = Path("/proc/self/status").read_text()  # not ru_maxrss, which begins with the parent's
    peak = 1024 * int(status.partition("VmHWM:")[2].split()[0])
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "settings": GRIDS[kind], "peak_bytes": peak}))


if __name__ == "__main__":
    main()
