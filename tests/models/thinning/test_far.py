"""Products with factors: shared by all cores where that pays, and equal either way."""

import numpy as np
import pytest

from conftest import random_csr
from recfusion.models.thinning import low_rank as far


def test_compiled_products_equal_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_csr(40, 23, 0.2, 0)
    factors = np.random.default_rng(1).standard_normal((23, 5)).astype(np.float32)
    wanted = rows.toarray() @ factors
    assert far._product(rows, factors) == pytest.approx(wanted, abs=1e-5)
    monkeypatch.setattr(far, "_SECONDS", 1.0)  # so that a compilation seems worth it
    assert far._product(rows, factors) == pytest.approx(wanted, abs=1e-5)
    assert far._product(rows.T.tocsr(), wanted).shape == (23, 5)
