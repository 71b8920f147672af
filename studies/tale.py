"""TALE: a linear model from earlier to later items, weighted by the time between them (Park et al., WSDM 2025).

Load it as `studies/tale.py:TALE`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg.blas import sgemm
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr, FloatArray, IntArray, row_numbers
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra, valued
from recfusion.data.split import Fold
from recfusion.models import self_tuning as selftune
from recfusion.models.base import Recommender, Shape
from recfusion.models.linear.gram import blas_threads, gram, gram_bytes, invert_in_place, require_gram_memory
from recfusion.models.sequence.recency import DAY, newer
from recfusion.models.settings import learned, self_tuned, setting

_MATRICES = 3.1  # items x items matrices held at the peak
_SPANS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)  # candidates for `span`; they need no separate fit


@dataclass
class TALE(Recommender):
    """Weights B = (S'S + l2 I)^-1 S'T from the sources of each target to the target.

    Every entry of a history except the first is a target, a row of T. Its row of S has the `window` entries before it,
    each with the weight max(exp(-days between / tau), least). In scoring, the entry with r newer ones has the weight
    exp(-r / span). This follows the authors' published code: without the trend normalisation of the paper, and without
    sources beyond the window. Without times histories have no order, and every other entry is a source.
    """

    reads: ClassVar[frozenset[Signal]] = frozenset({"times"})
    l2: float | None = self_tuned(200.0, "weight of the squared penalty", at_least=1e-6, search=(1, 1e4), log=True)
    tau: float | None = self_tuned(30.0, "days until a source weighs 1/e", at_least=1e-6, search=(0.05, 365), log=True)
    span: float | None = self_tuned(10.0, "newer entries after which an item has weight 1/e", search=(1, 50), log=True)
    least: float = setting(0.4, "smallest weight of a source", at_least=0)
    window: int = setting(20, "largest number of sources of a target, the newest ones", at_least=1)
    tune_trials: int = selftune.trials_setting()
    l2_: float = learned()
    tau_: float = learned()
    span_: float = learned()
    weights_: FloatArray = learned()  # (items, items)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, extra: Extra | None = None) -> Self:
        times = valued(train, np.zeros(train.nnz, np.int64)) if extra is None else extra.times
        assert times is not None
        require_gram_memory(train.shape[1], "TALE", _MATRICES)
        steps = source_steps(times, self.window)
        spans = _SPANS if self.span is None else (self.span,)

        def objective(values: Mapping[str, Any], jury: selftune.Jury) -> list[selftune.Judged]:
            weights = self._solve(times, steps, values["l2"], values["tau"])

            def scored(rows: slice) -> Iterator[FloatArray]:
                part = jury.valid.take(rows)
                return (np.asarray(faded(part.history, part.extra, span) @ weights) for span in spans)

            found = zip(spans, selftune.ndcg_of(scored, jury.valid), strict=True)
            return [selftune.Judged({"span": span}, values) for span, values in found]

        self.trials_ = 0
        asked = (self, objective, selftune.validation_jury(train, valid), make_rng(rng))
        selftune.settle(*asked, searched=("l2", "tau"), free=("span",), trials=self.tune_trials)
        self.weights_ = self._solve(times, steps, self.l2_, self.tau_)
        return self

    def fit_bytes(self, shape: Shape) -> int:
        pairs = 48 * self.window * shape.interactions  # pairs of source and target
        return gram_bytes(shape.items, _MATRICES, shape.interactions) + pairs

    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        return np.asarray(faded(history, extra, self.span_) @ self.weights_)

    def _solve(self, times: Csr, steps: "tuple[IntArray, IntArray]", l2: float, tau: float) -> FloatArray:
        n_items = times.shape[1]
        s, t = sources(times, steps, tau, self.least)
        g = gram(s)
        g[np.diag_indices(n_items)] += np.float32(l2)
        p = invert_in_place(g)
        k = np.asarray((s.T @ t).todense(), np.float32, order="F")
        with blas_threads(n_items):
            return np.ascontiguousarray(sgemm(1.0, p, k))


def source_steps(times: Csr, window: int) -> tuple[IntArray, IntArray]:
    """Return pairs of stored entries, a target and one of the `window` entries before it, sorted by target.

    Entries with equal times are not sources of each other, unless the whole row has one time.
    """
    rows = row_numbers(times)
    window = min(window, int(np.diff(times.indptr).max(initial=1)))  # no row is longer
    order = np.lexsort((times.data, rows))
    when, of_row = times.data[order], rows[order]
    one_time = np.ones(times.shape[0], bool)
    np.logical_and.at(one_time, of_row[1:], (when[1:] == when[:-1]) | (of_row[1:] != of_row[:-1]))
    targets, sources_ = [], []
    places = np.arange(times.nnz)
    for step in (*range(1, window + 1), *range(-window, 0)):
        before = places - step
        inside = (before >= 0) & (before < times.nnz)
        t, s = places[inside], before[inside]
        same = of_row[t] == of_row[s]
        earlier = (when[s] < when[t]) | one_time[of_row[t]]
        wanted = same & earlier
        targets.append(order[t[wanted]])
        sources_.append(order[s[wanted]])
    found, source = np.concatenate(targets), np.concatenate(sources_)
    by_target = np.argsort(found, kind="stable")
    return found[by_target], source[by_target]


def sources(times: Csr, steps: tuple[IntArray, IntArray], tau: float, least: float) -> tuple[Csr, Csr]:
    """Return S and T (targets, items): the weighted sources of each target with sources, and the target itself."""
    target, source = steps
    days = np.abs(times.data[target] - times.data[source]) / DAY
    weights = np.maximum(np.exp(-days / tau), least).astype(np.float32)
    distinct, row = np.unique(target, return_inverse=True)
    shape = (len(distinct), times.shape[1])
    s = csr_array((weights, (row, times.indices[source])), shape=shape, dtype=np.float32)
    ones = np.ones(len(distinct), np.float32)
    return s, csr_array((ones, (np.arange(len(distinct)), times.indices[distinct])), shape=shape, dtype=np.float32)


def faded(history: Csr, extra: Extra | None, span: float) -> Csr:
    """Return the histories with weights exp(-r / span) for r newer entries; unchanged without times."""
    if extra is None or extra.times is None:
        return history
    return valued(history, np.exp(-newer(extra.times) / span).astype(np.float32))
