"""Graph filters against dense eigen-decompositions."""

from typing import Literal

import numpy as np
import pytest

from conftest import random_csr
from recfusion.models.baselines.graph_filter import GraphFilter, plateau
from recfusion.models.registry import entry


def dense_parts() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return R, the item counts, and the eigenvalues and eigenvectors of P, the largest last."""
    train = random_csr(30, 12, 0.3, seed=1)
    r = train.toarray().astype(np.float64)
    n = r.sum(0)
    tilde = r / np.sqrt(r.sum(1))[:, None] / np.sqrt(n)
    values, vectors = np.linalg.eigh(tilde.T @ tilde)
    return r, n, values, vectors


@pytest.mark.parametrize(("filter_", "p", "q"), [("linear", 0.0, 0.5), ("plateau", 0.4, 0.4), ("none", 0.3, 0.2)])
def test_a_filter_is_a_function_of_the_eigenvalues(
    filter_: Literal["linear", "plateau", "none"], p: float, q: float
) -> None:
    r, n, values, vectors = dense_parts()
    train = random_csr(30, 12, 0.3, seed=1)
    model = GraphFilter(filter_, power=p, low_pass=0.7, low_pass_power=q, factors=3, order=4).fit(train, rng=0)
    coefficients = plateau(4, model.flatness)
    response = {
        "linear": values,
        "plateau": np.polynomial.chebyshev.chebval(1 - 2 * values, coefficients),
        "none": 0 * values,
    }[filter_]
    whole = (r * n**-p) @ (vectors * response) @ vectors.T * n**p
    low = 0.7 * (r * n**-q) @ vectors[:, -3:] @ vectors[:, -3:].T * n**q
    assert np.allclose(model.score(train), whole + low, atol=1e-3)


def test_the_plateau_passes_low_frequencies_and_is_flat_in_the_middle() -> None:
    response = np.polynomial.chebyshev.chebval(np.linspace(-1, 1, 9), plateau(8, 1.5))
    assert response[0] == pytest.approx(1, abs=0.1)
    assert response[4] == pytest.approx(0.5)
    assert response[-1] == pytest.approx(0, abs=0.1)
    assert np.all(np.diff(response) < 0.01)


def test_a_filter_of_low_frequencies_alone_holds_no_training_rows() -> None:
    train = random_csr(30, 12, 0.3, seed=1)
    model = GraphFilter(filter="none", factors=3).fit(train, rng=0)
    assert not model.keeps_histories
    assert model.rows_.nnz == 0
    assert GraphFilter().keeps_histories


def test_an_item_without_users_gets_no_score() -> None:
    train = random_csr(30, 12, 0.3, seed=1)
    wider = train.copy()
    wider.resize((30, 13))
    for filter_ in ("linear", "plateau", "none"):
        model = entry("gf-cf").make({"filter": filter_, "factors": 3, "power": 0.4}).fit(wider, rng=0)
        assert np.all(model.score(wider)[:, -1] == 0)
