"""Leave-one-user-out scores against refits without the user, in double precision, with the penalties held fixed."""

from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from conftest import csr, random_csr
from recfusion.core.arrays import Csr
from recfusion.models.leave_one_out import LeftOut, left_out, linear_scores, nobody, share_shown
from recfusion.models.neural.infinite_ae import KernelRidge, ntk, predict
from recfusion.models.thinning.pairs import PairsLeftOut, with_pairs

Dense: TypeAlias = Any  # double precision, where models have single
N_USERS, N_ITEMS = 25, 8
RNG = np.random.default_rng(0)
X = random_csr(N_USERS, N_ITEMS, 0.45, 3)
WEIGHTS: Dense = RNG.uniform(0.3, 2.0, N_USERS)  # of users
PENALTIES = RNG.uniform(1.0, 4.0, N_ITEMS)
FOLD = left_out(X, 100, np.random.default_rng(1))


def double(rows: Csr) -> Csr:
    return csr_array(rows, dtype=np.float64)


def inverse(keep: NDArray[np.bool_]) -> Dense:
    """Return P of a fit on some users."""
    x = X.toarray().astype(np.float64)[keep]
    return np.linalg.inv((x.T * WEIGHTS[keep]) @ x + np.diag(PENALTIES))


def weights_of(p: Dense) -> Dense:
    b = -p / np.diag(p)
    np.fill_diagonal(b, 0)
    return b


EVERYBODY = np.ones(N_USERS, bool)


def test_linear_scores_and_diagonals_are_those_of_refits_without_the_user() -> None:
    p = inverse(EVERYBODY)
    fit = LeftOut(double(X), FOLD, WEIGHTS, weights_of(p), np.diag(p).copy())
    scores, diagonal = fit.scores_and_diagonal(slice(None))
    for row, user in enumerate(FOLD.users):
        other = inverse(np.arange(N_USERS) != user)
        shown = FOLD.history[[row]].toarray()[0].astype(np.float64)
        asked = shown == 0
        assert scores[row][asked] == pytest.approx((shown @ weights_of(other))[asked], abs=1e-9)
        assert diagonal[row] == pytest.approx(np.diag(other), abs=1e-9)
    assert (fit.scores(slice(3, 7)) == scores[3:7]).all()


def test_what_is_shown_may_enter_with_a_scale_of_its_items() -> None:
    p: Dense = inverse(EVERYBODY)
    scale: Dense = RNG.uniform(0.5, 2.0, N_ITEMS)
    fit = LeftOut(double(X), FOLD, WEIGHTS, weights_of(p), np.diag(p).copy())
    scores, _ = fit.scores_and_diagonal(slice(None), scale)
    for row, user in enumerate(FOLD.users):
        shown = FOLD.history[[row]].toarray()[0] * scale
        expected = shown @ weights_of(inverse(np.arange(N_USERS) != user))
        assert scores[row][shown == 0] == pytest.approx(expected[shown == 0], abs=1e-9)


def test_in_sample_scores_are_others() -> None:
    """Otherwise the tests above would pass for scores that know the user."""
    p = inverse(EVERYBODY)
    b = weights_of(p)
    found, _ = linear_scores(b, np.diag(p).copy(), double(X[FOLD.users]), double(FOLD.history), WEIGHTS[FOLD.users])
    assert np.abs(found - FOLD.history @ b)[FOLD.history.toarray() == 0].max() > 0.05


def test_scores_with_pairs_are_those_of_refits_without_the_user() -> None:
    """The part of the Gram matrix that thinning adds is a penalty: it is held fixed, as those of the items are."""
    pairs = np.array([[0, 1], [0, 2], [0, 5], [1, 2], [3, 4]])
    n = N_ITEMS + len(pairs)
    noise = np.random.default_rng(2).normal(size=(n, n))
    fixed = noise @ noise.T / 10 + np.diag(RNG.uniform(1, 3, n))  # any positive matrix
    features = with_pairs(X, pairs).toarray().astype(np.float64)
    x = X.toarray().astype(np.float64)

    def regressions(keep: NDArray[np.bool_]) -> tuple[Dense, Dense]:
        """Return the weights of each target on the features that do not contain it, and the inverse of all."""
        a = (features[keep].T * WEIGHTS[keep]) @ features[keep] + fixed
        b = np.zeros((n, N_ITEMS))
        for j in range(N_ITEMS):
            free = [f for f in range(n) if f != j and (f < N_ITEMS or j not in pairs[f - N_ITEMS])]
            toward = (features[keep][:, free].T * WEIGHTS[keep]) @ x[keep, j]
            b[free, j] = np.linalg.solve(a[np.ix_(free, free)], toward)
        return b, np.linalg.inv(a)

    b, p = regressions(EVERYBODY)
    fit = PairsLeftOut.of(X, FOLD, WEIGHTS, p, pairs)
    scores = fit.scores(slice(None), b)
    queries = with_pairs(FOLD.history, pairs).toarray()
    for row, user in enumerate(FOLD.users):
        expected = queries[row] @ regressions(np.arange(N_USERS) != user)[0]
        asked = FOLD.history[[row]].toarray()[0] == 0
        assert scores[row][asked] == pytest.approx(expected[asked], abs=1e-9)


def test_kernel_scores_are_those_of_refits_without_the_user() -> None:
    inputs, ridge, bias = double(X), RNG.uniform(0.5, 2.0, N_USERS), 0.1
    k = ntk(inputs, inputs, bias).astype(np.float64)
    k = (k + k.T) / 2

    def solution(keep: NDArray[np.bool_]) -> KernelRidge:
        inverted = np.linalg.inv(k[np.ix_(keep, keep)] + np.diag(ridge[keep]))
        return KernelRidge(inputs[keep], inverted, double(X)[keep])

    found = predict(solution(EVERYBODY), double(FOLD.history), bias, without=FOLD.users)
    plain = predict(solution(EVERYBODY), double(FOLD.history), bias)
    for row, user in enumerate(FOLD.users):
        other = solution(np.arange(N_USERS) != user)
        assert found[row] == pytest.approx(predict(other, double(FOLD.history[[row]]), bias)[0], abs=1e-5)
    assert np.abs(found - plain).max() > 0.01


def test_the_users_left_out_show_a_share_of_their_items_and_hold_out_the_rest() -> None:
    x = csr([[0, 1, 2, 3, 4], [0], [], [2, 3], list(range(10))], 10)
    fold = left_out(x, 100, np.random.default_rng(0), shown=0.8)
    assert fold.users.tolist() == [0, 3, 4]  # one item cannot be divided
    assert np.diff(fold.history.indptr).tolist() == [4, 1, 8]
    assert ((fold.history + fold.held_out).toarray() == x[fold.users].toarray()).all()
    assert share_shown(fold) == pytest.approx(13 / 17)


def test_no_more_users_are_left_out_than_asked_for() -> None:
    assert len(left_out(X, 7, np.random.default_rng(0)).users) == 7
    assert len(left_out(X, 0, np.random.default_rng(0)).users) == 0
    assert len(nobody(X).users) == 0
