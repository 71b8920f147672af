"""Fit implicit's ALS or cosine neighbours, or SANSA, on a given split, to compare recfusion with them.

Runs in a virtual environment of its own and does not import recfusion: `pip install implicit==0.7.3` and, for SANSA,
`pip install sansa==1.1.0 scikit-sparse==0.4.16` with the headers of SuiteSparse (Debian: libsuitesparse-dev). A split
comes in as an .npz file (see `scale.py`), and lists for validation and test users go out, for each setting tried; the
caller judges both sides' lists alike. If the file has a `whole` training matrix, the lists of test users come from a
second fit on it, and the times are those of the second fit.

    sparse_peers.py als|als-large|cosine|sansa SPLIT.npz LISTS.npz
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

# settings tried on the same validation users: as many as our models' searches have trials, or all that make sense
GRIDS: dict[str, list[dict[str, float]]] = {
    "als": [{"regularization": r, "alpha": a} for a in (1.0, 4.0, 16.0) for r in (0.01, 1.0, 10.0)],
    "als-large": [
        {"factors": f, "regularization": r, "alpha": a} for f in (128, 256) for r in (1.0, 10.0) for a in (16.0, 64.0)
    ],
    "cosine": [{"K": k} for k in (20, 50, 100, 200, 400, 1000)],
    "sansa": [{"l2": l2, "density": d} for d in (0.0005, 0.001, 0.002) for l2 in (5.0, 20.0)],
}
BATCH = 1000  # users whose scores SANSA computes at a time


def fitted(kind: str, settings: dict[str, float], train: csr_matrix) -> Any:
    """Return a peer's model, fitted with one thread."""
    if kind == "sansa":
        import sansa

        factors = sansa.ICFGramianFactorizerConfig(factorization_shift_step=1e-3)
        inverse = sansa.UMRUnitLowerTriangleInverterConfig(scans=1, finetune_steps=10)
        return sansa.SANSA(sansa.SANSAConfig(settings["l2"], settings["density"], factors, inverse)).fit(train)
    from implicit.als import AlternatingLeastSquares
    from implicit.nearest_neighbours import CosineRecommender

    if kind.startswith("als"):
        model = AlternatingLeastSquares(**{"factors": 64} | settings, iterations=15, random_state=0, num_threads=1)
    else:
        model = CosineRecommender(num_threads=1, **settings)
    model.fit(train, show_progress=False)
    return model


def top_items(kind: str, model: Any, users: csr_matrix, length: int) -> np.ndarray:
    """Return lists of unseen items."""
    if kind != "sansa":
        options = {"filter_already_liked_items": True, "recalculate_user": kind.startswith("als")}
        return model.recommend(np.arange(users.shape[0]), users, N=length, **options)[0]
    lists = []
    for start in range(0, users.shape[0], BATCH):
        scores = model.forward(users[start : start + BATCH]).toarray()
        scores[users[start : start + BATCH].nonzero()] = -np.inf
        best = np.argpartition(-scores, length, axis=1)[:, :length]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
        lists.append(np.take_along_axis(best, order, axis=1))
    return np.concatenate(lists)


def main() -> None:
    kind, split, lists = sys.argv[1:4]
    with np.load(split) as file:
        n_items = int(file["shape"][3])

        def matrix(name: str) -> csr_matrix:
            starts = file[f"{name}_indptr"]
            data = np.ones(len(file[f"{name}_indices"]), np.float32)
            return csr_matrix((data, file[f"{name}_indices"], starts), shape=(len(starts) - 1, n_items))

        train, valid, test = (matrix(name) for name in ("train", "valid", "test"))
        whole = matrix("whole") if "whole_indptr" in file else None
        length = int(file["length"])
    found, seconds, cpu_seconds = {}, [], []
    for number, settings in enumerate(GRIDS[kind]):
        began, cpu = time.perf_counter(), time.process_time()
        model = fitted(kind, settings, train)
        found[f"valid_{number}"] = top_items(kind, model, valid, length)
        if whole is not None:
            began, cpu = time.perf_counter(), time.process_time()
            model = fitted(kind, settings, whole)
        seconds.append(time.perf_counter() - began)
        cpu_seconds.append(time.process_time() - cpu)
        found[f"test_{number}"] = top_items(kind, model, test, length)
    np.savez(lists, allow_pickle=False, **found)
    status = Path("/proc/self/status").read_text()  # not ru_maxrss, which begins with the parent's
    peak = 1024 * int(status.partition("VmHWM:")[2].split()[0])
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "settings": GRIDS[kind], "peak_bytes": peak}))


if __name__ == "__main__":
    main()
