"""Truncated decompositions of the interactions: PureSVD and SVD-AE."""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from recfusion.core.arrays import Csr, FloatArray, column_counts
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.signals import valued
from recfusion.data.split import Fold
from recfusion.models.base import Recommender, Shape
from recfusion.models.baselines.graph_filter import normalised
from recfusion.models.settings import learned, setting
from recfusion.models.thinning.low_rank import SPARE, leading

_SHARE = 4  # at most a quarter of the vectors: all of them would return the row itself
_FORM_DOC = "projection on V (pure), or least squares from normalised rows to plain ones (autoencoder)"


@dataclass
class TruncatedSVD(Recommender):
    """Scores of a user's row r from the leading singular vectors V (items, factors).

    pure         r V V', with X = U S V' (PureSVD; Cremonesi et al., 2010)
    autoencoder  r~ V S^-1 U'X, with X~ = D_u^-1/2 X D_i^-1/2 = U S V' and r~ a row of it: the rows X~ B nearest
                 to X if B has the rank of V (SVD-AE; Hong et al., 2024)
    """

    form: Literal["pure", "autoencoder"] = setting("pure", _FORM_DOC)
    factors: int = setting(64, "singular vectors", at_least=1, at_most=100_000, search=(8, 1024), log=True)
    inputs_: FloatArray = learned()  # (items, factors)
    outputs_: FloatArray = learned()  # (factors, items)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        rows = train if self.form == "pure" else normalised(train)
        n_items = train.shape[1]
        count = min(self.factors, max(1, n_items // _SHARE))
        squared, v = leading(rows, np.ones(n_items, np.float32), count, make_rng(rng))
        self.inputs_, self.outputs_ = v, np.ascontiguousarray(v.T)
        if self.form == "autoencoder":
            kept = squared > 1e-6  # the rest is rounding
            v, squared = v[:, kept], squared[kept]
            counts = np.maximum(1, column_counts(train)).astype(np.float32)
            self.inputs_ = np.asarray(v / np.sqrt(counts)[:, None], np.float32)
            # S^-1 U'X = S^-2 V' X~'X
            self.outputs_ = np.ascontiguousarray((train.T @ (rows @ v)).T / squared[:, None], np.float32)
        return self

    def score(self, history: Csr) -> FloatArray:
        if self.form == "autoencoder":
            lengths = np.diff(history.indptr)
            history = valued(history, history.data / np.sqrt(np.repeat(lengths, lengths)).astype(np.float32))
        return np.asarray((history @ self.inputs_) @ self.outputs_, np.float32)

    def fit_bytes(self, shape: Shape) -> int:
        """Return about how many bytes the fit holds at its peak: the vectors of the subspace iteration."""
        width = min(self.factors, shape.items) + SPARE
        return 24 * shape.interactions + 4 * width * (6 * shape.items + shape.users)
