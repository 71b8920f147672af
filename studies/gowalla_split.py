"""Why settings that are best on a random part of Gowalla's training file are not best on its published test file.

    RECFUSION_DATA=... python studies/gowalla_split.py --out studies/results/gowalla_split.json

The first table is the share of the pairs of items with some popularity that are in the test file. The second one scores
`thinning-local` with scaled inputs (divided by popularity^a) and outputs (by popularity^c), graph filters, and mixtures
with weights chosen on validation users: on a random tenth of each training history after a fit without it, and on the
test file after a fit on all of the training file. `--keep` stores the scores of candidate items and uses them again.
"""

import argparse
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

import recfusion as rf
from recfusion.core.arrays import Csr, FloatArray, column_counts, keep_entries, row_numbers
from recfusion.core.files import write_json
from recfusion.data.interactions import TEST, TRAIN
from recfusion.data.split import Fold
from recfusion.evaluation.metrics import dcg, ideal_dcg
from recfusion.models.baselines.graph_filter import GraphFilter
from recfusion.models.registry import entry
from recfusion.models.self_tuning import relative
from recfusion.models.thinning.local import ThinningLocal
from recfusion.models.thinning.mixture_weights import Ballot, search_weights, standardised

BOUNDS = (0, 12, 20, 40, 100, 300, 10**9)  # users of an item, in both files
POWERS = ((0, 0.2), (0, 0.1), (0, 0), (0.25, 0), (0.5, -0.2))  # a and c
CANDIDATES, STEP = 400, 40
LOW = "low-pass 512 q=0.5"
MIXED = (
    ("local a=0 c=0.2", LOW),
    ("local a=0 c=0.2", "chebycf"),
    ("local a=0.25 c=0", LOW),
    ("local a=0.5 c=-0.2", "linear filter", LOW),
)
Score = Callable[[Csr], FloatArray]


@dataclass(frozen=True)
class Candidates:
    """The standardised scores (parts, users, candidates) of some users' candidate items."""

    names: tuple[str, ...]
    scores: FloatArray
    relevant: NDArray[np.bool_]  # (users, candidates)
    held_out: NDArray[np.int64]  # (users,): how many items

    def metrics(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Return Recall@20, NDCG@20 and NDCG@100 of a mixture."""
        hits = self._hits(weights)
        found = {"recall@20": hits[:, :20].sum(1) / self.held_out}
        found |= {f"ndcg@{k}": dcg(hits, k) / ideal_dcg(self.held_out, k) for k in (20, 100)}
        return {name: round(float(values.mean()), 4) for name, values in found.items()}

    def ballot(self, names: tuple[str, ...]) -> Ballot:
        """Return what a search for the weights of some parts needs."""
        places = [self.names.index(name) for name in names]
        return Ballot(names, self.scores[places], self.relevant, ideal_dcg(self.held_out, 100))

    def _hits(self, weights: Mapping[str, float]) -> NDArray[np.bool_]:
        used = [(place, weights[name]) for place, name in enumerate(self.names) if weights.get(name)]
        mixed = sum(np.float32(weight) * self.scores[place] for place, weight in used)
        best = np.argsort(-np.asarray(mixed), axis=1, kind="stable")[:, :100]
        return np.take_along_axis(self.relevant, best, 1)


def test_shares(train: Csr, test: Csr) -> list[dict[str, Any]]:
    """Return the share of test pairs among all pairs, by the popularity of items in both files."""
    known, tested = column_counts(train), column_counts(test)
    both = known + tested
    found = []
    for low, high in itertools.pairwise(BOUNDS):
        here = (both >= low) & (both < high)
        share = float(tested[here].sum() / max(1, both[here].sum()))
        found.append({"users_from": low, "items": int(here.sum()), "test_share": round(share, 4)})
    return found


def hold_out(rows: Csr, share: float, rng: np.random.Generator) -> tuple[Csr, Csr]:
    """Divide each history at random."""
    lengths = np.diff(rows.indptr)
    order = np.lexsort((rng.random(rows.nnz), row_numbers(rows)))
    rank = np.empty(rows.nnz, np.int64)
    rank[order] = np.arange(rows.nnz) - np.repeat(rows.indptr[:-1], lengths)
    kept = rank < np.repeat(np.clip(np.rint((1 - share) * lengths), 1, lengths - 1), lengths)
    return keep_entries(rows, kept), keep_entries(rows, ~kept)


def fitted(train: Csr) -> dict[str, Score]:
    """Return the scores of all parts; the settings of the linear model are those of its search, rounded."""
    popularity = relative(column_counts(train).astype(np.float32))
    local = ThinningLocal(l2=240.0, nu=0.318, kappa=0.876, b=0.5, c=0.0, cells=0, tune_trials=0).fit(train, rng=0)

    def scaled(a: float, c: float) -> Score:
        def score(history: Csr) -> FloatArray:
            values = history.data * popularity[history.indices] ** np.float32(-a)
            weighted = csr_array((values, history.indices, history.indptr), shape=history.shape)
            return local.score(weighted) * popularity ** np.float32(-c)

        return score

    parts: dict[str, Score] = {f"local a={a} c={c}": scaled(a, c) for a, c in POWERS}
    cheby = entry("chebycf").make().fit(train, rng=0)
    assert isinstance(cheby, GraphFilter)
    parts["chebycf"] = cheby.score
    parts["linear filter"] = entry("gf-cf").make({"low_pass": 0.0, "factors": 2}).fit(train, rng=0).score
    for count in (128, 512):
        for q in (0.3, 0.5):
            low = replace(cheby, filter="none", low_pass=1.0, low_pass_power=q)
            low.counts_, low.v_, low.rows_ = cheby.counts_, cheby.v_[:, -count:], cheby.rows_[:0]
            parts[f"low-pass {count} q={q}"] = low.score
    return parts


def candidates(parts: Mapping[str, Score], fold: Fold) -> Candidates:
    """Score the users of a fold with every part; candidates are the top-scored items of any part."""
    scores, relevant = [], []
    for start in range(0, len(fold.users), STEP):
        some = fold.take(slice(start, start + STEP))
        all_scores = np.stack([standardised(np.array(score(some.history)), some.history) for score in parts.values()])
        highest = all_scores.max(0)
        highest[row_numbers(some.history), some.history.indices] = -np.inf
        chosen = np.sort(np.argpartition(-highest, CANDIDATES, axis=1)[:, :CANDIDATES], axis=1)
        scores.append(np.take_along_axis(all_scores, chosen[None], 2))
        relevant.append(np.take_along_axis(some.held_out.toarray() > 0, chosen, 1))
    held_out = np.diff(fold.held_out.indptr).astype(np.int64)
    return Candidates(tuple(parts), np.concatenate(scores, 1), np.concatenate(relevant), held_out)


def compare(valid: Candidates, test: Candidates) -> list[dict[str, Any]]:
    """Return the metrics of each part and mixture on both sets of users; weights are chosen on validation users."""
    mixtures: list[dict[str, float]] = [{name: 1.0} for name in valid.names]
    for names in MIXED:
        found = search_weights(valid.ballot(names), [dict.fromkeys(names, 0.5)])
        mixtures.append({name: round(share, 2) for name, share in found.items()})
    return [{"weights": w, "validation": valid.metrics(w), "test": test.metrics(w)} for w in mixtures]


def kept(path: Path | None, make: Callable[[], Candidates]) -> Candidates:
    """Return stored candidates, or make and store them."""
    if path is not None and path.exists():
        with np.load(path) as stored:
            names = tuple(str(name) for name in stored["names"])
            return Candidates(names, stored["scores"], stored["relevant"], stored["held_out"])
    found = make()
    if path is not None:
        np.savez(path, names=np.array(found.names), **{k: v for k, v in vars(found).items() if k != "names"})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="gowalla")
    parser.add_argument("--valid-users", type=int, default=1500)
    parser.add_argument("--test-users", type=int, default=4000)
    parser.add_argument("--keep", type=Path, help="folder for the scores of candidates")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    data = rf.load(asked.data)
    assert data.parts is not None
    whole, test = (keep_entries(data.matrix, data.parts == part) for part in (TRAIN, TEST))
    rng = np.random.default_rng(0)
    train, out = hold_out(whole, 0.1, rng)
    users, tested = (np.sort(rng.permutation(data.n_users)[:n]) for n in (asked.valid_users, asked.test_users))
    valid = Fold(users, train[users], out[users]).scorable()
    test_fold = Fold(tested, whole[tested], test[tested]).scorable()
    paths = [None if asked.keep is None else asked.keep / f"{name}.npz" for name in ("valid", "test")]
    on_valid = kept(paths[0], lambda: candidates(fitted(train), valid))
    on_test = kept(paths[1], lambda: candidates(fitted(whole), test_fold))
    found = {"test_shares": test_shares(whole, test), "models": compare(on_valid, on_test)}
    for row in (*found["test_shares"], *found["models"]):
        print(row)
    if asked.out is not None:
        write_json(asked.out, found)


if __name__ == "__main__":
    main()
