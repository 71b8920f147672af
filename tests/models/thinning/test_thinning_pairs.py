"""The second order: pairs of items as features, against brute force over all masks, pairs and regressions."""

import tracemalloc
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from conftest import csr, random_csr
from recfusion.core.arrays import Csr
from recfusion.data.signals import valued
from recfusion.models.linear.gram import gram, user_weighted
from recfusion.models.thinning import pairs as pairs_module
from recfusion.models.thinning.linear import ThinningLinear
from recfusion.models.thinning.pairs import exclude_own, most_frequent, most_frequent_of, rescale, with_pairs

Dense = NDArray[np.float64]
SMALL = csr([[0, 1, 2], [0, 1], [1, 3, 4], [0, 2, 3, 4], [2], [0, 1, 4]], 5)


@pytest.fixture(autouse=True)
def _pairs_of_single_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pairs that one user has be features: data this small has no others."""
    monkeypatch.setattr("recfusion.models.thinning.linear._PAIR_USERS", 1)


def features(x: Dense, sets: list[tuple[int, ...]], q: float = 1.0) -> Dense:
    """Return prod x_i / q^|a| over the items i of each set a, (rows, sets)."""
    return np.stack([x[:, list(a)].prod(axis=1) / q ** len(a) for a in sets], axis=1)


def moments(x: Dense, weight: Dense, sets: list[tuple[int, ...]], q: float) -> tuple[Dense, Dense]:
    """Return the expected products of features with features and with targets, summed over users and all masks."""
    n_items = x.shape[1]
    masks = np.array(list(product([0.0, 1.0], repeat=n_items)))
    chance = (q**masks * (1 - q) ** (1 - masks)).prod(axis=1)
    among, with_targets = np.zeros((len(sets), len(sets))), np.zeros((len(sets), n_items))
    for user, w in zip(x, weight, strict=True):
        phi = features(masks * user, sets, q)
        among += w * phi.T @ (chance[:, None] * phi)
        with_targets += w * np.outer(chance @ phi, user)
    return among, with_targets


@pytest.mark.parametrize("count", [1, 4, 10])
def test_the_closed_form_minimises_the_loss_expected_over_all_masks(count: int) -> None:
    """Each target is regressed on the features that do not contain it, with normal equations summed mask by mask."""
    x = SMALL.toarray().astype(np.float64)
    l2, nu, kappa, b, pair_l2 = 0.7, 0.5, 0.8, 0.5, 1.5
    model = ThinningLinear(l2=l2, nu=nu, kappa=kappa, b=b, c=0, pairs=count, pair_l2=pair_l2).fit(SMALL)
    pairs = [tuple(int(i) for i in pair) for pair in model.pairs_]
    assert len(pairs) == min(count, len({p for row in x for p in combinations(np.flatnonzero(row).tolist(), 2)}))
    sets = [*((i,) for i in range(5)), *pairs]
    lengths = x.sum(axis=1)
    weight = lengths**-b * lengths.sum() / (lengths ** (1 - b)).sum()
    among, with_targets = moments(x, weight, sets, 1 / (1 + kappa))
    n = weight @ x
    ridge = np.concatenate([l2 * (n / n.mean()) ** nu, np.full(len(pairs), pair_l2)])
    for j in range(5):
        free = [number for number, a in enumerate(sets) if j not in a]
        expected = np.zeros(len(sets))
        expected[free] = np.linalg.solve(
            among[np.ix_(free, free)] + np.diag(ridge[free]), [with_targets[number, j] for number in free]
        )
        assert model.weights_[:, j] == pytest.approx(expected, abs=1e-5)
    assert np.abs(model.weights_[5:]).max() > 0.01  # pairs do have a say
    history = np.array([[1.0, 1, 1, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 1, 1]])
    asked = csr([np.flatnonzero(row).tolist() for row in history], 5)
    assert model.score(asked) == pytest.approx(features(history, sets) @ model.weights_, abs=1e-6)


@pytest.mark.parametrize("q", [0.4, 0.9])
def test_rescaling_co_occurrences_gives_the_gram_matrix_of_thinned_features(q: float) -> None:
    pairs = np.array([[0, 1], [0, 2], [1, 4], [3, 4]])
    x = SMALL.toarray().astype(np.float64)
    sets = [*((i,) for i in range(5)), *(tuple(pair) for pair in pairs.tolist())]
    c = gram(with_pairs(SMALL, pairs))
    rescale(c, pairs, 5, q)
    assert c == pytest.approx(moments(x, np.ones(6), sets, q)[0], rel=1e-5)


def test_a_model_without_pairs_is_the_linear_one() -> None:
    """Pairs that are asked for and never occur leave the same model, by the other way to it."""
    lonely = csr([[0], [1], [2], [0]], 4)
    given: dict[str, Any] = {"l2": 0.7, "nu": 0.5, "kappa": 0.8, "b": 0.5, "c": 0.2, "pair_l2": 1.0}
    for x, count in ((lonely, 9), (SMALL, 0)):
        model = ThinningLinear(**given, pairs=count).fit(x)
        assert model.pairs_.shape == (0, 2)
        assert model.weights_ == pytest.approx(ThinningLinear(**given).fit(x).weights_, abs=1e-6)
    x = random_csr(50, 12, 0.3, 0)
    heavy = ThinningLinear(**given | {"pair_l2": 1e9}, pairs=20).fit(x)
    assert len(heavy.pairs_) == 20
    assert heavy.weights_[:12] == pytest.approx(ThinningLinear(**given).fit(x).weights_, abs=1e-4)


@pytest.mark.parametrize("at_least", [1, 3, 5, 99])
def test_pairs_are_searched_among_the_items_with_enough_users_alone(at_least: int) -> None:
    train = random_csr(30, 12, 0.3, 0)
    assert (most_frequent_of(train, 9, at_least) == most_frequent(gram(train), 9, at_least)).all()
    assert most_frequent_of(train, 0, at_least).shape == (0, 2)


@pytest.mark.parametrize("count", [0, 1, 3, 40, 10_000])
@pytest.mark.parametrize("seed", range(3))
def test_the_most_frequent_pairs_are_those_of_a_full_sort(count: int, seed: int) -> None:
    """Thirty users leave most counts equal to many others; item 24 meets nobody."""
    x = random_csr(30, 24, 0.15, seed)
    g = gram(csr([row.indices.tolist() for row in x], 25))
    every = [(i, j) for i, j in combinations(range(25), 2) if g[i, j] > 0]
    expected = sorted(sorted(every, key=lambda pair: -g[pair])[:count])
    assert most_frequent(g, count).tolist() == [list(pair) for pair in expected]
    assert len({float(g[pair]) for pair in every}) < len(every) / 4  # many ties


def test_pairs_that_never_occur_are_not_chosen() -> None:
    assert most_frequent(gram(csr([[0], [1], [2]], 3)), 2).shape == (0, 2)
    assert most_frequent(gram(csr([[0, 2], [1]], 3)), 2).tolist() == [[0, 2]]
    assert most_frequent(gram(csr([[0]], 1)), 2).shape == (0, 2)


@pytest.mark.parametrize("cells", [1, 60, 1 << 22], ids=["row by row", "in blocks", "at once"])
def test_a_pair_s_entry_is_the_product_of_its_items_entries(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_module, "_CELLS_PER_BLOCK", cells)
    x = csr([[0, 1, 2], [], [0, 1], [3], [0, 1, 2, 3], []], 4)
    pairs = np.array([[0, 1], [1, 2], [2, 3]])
    for values in (np.ones(x.nnz), np.arange(1, x.nnz + 1) / 4):  # a binary history, and one with weighted entries
        rows = valued(x, values.astype(np.float32))
        expected = features(rows.toarray().astype(np.float64), [(0, 1), (1, 2), (2, 3)])
        found = with_pairs(rows, pairs)
        assert found.shape == (6, 7)
        assert found.dtype == np.float32
        assert found.toarray()[:, :4] == pytest.approx(rows.toarray())
        assert found.toarray()[:, 4:] == pytest.approx(expected)


def test_a_user_s_weight_counts_once_for_a_pair() -> None:
    x, pairs = csr([[0, 1, 2], [], [0, 1]], 4), np.array([[0, 1]])
    found = user_weighted(x, 0.5, with_pairs(x, pairs)).toarray()
    roots = user_weighted(x, 0.5).toarray().max(axis=1)
    assert found[:, 4] == pytest.approx(roots)
    assert found[:, 0] == pytest.approx(roots)


@pytest.mark.parametrize("rows", [csr([], 4), csr([[], []], 4)], ids=["nobody", "empty users"])
def test_nothing_has_no_pairs(rows: Csr) -> None:
    found = with_pairs(rows, np.array([[0, 1]]))
    assert found.shape == (rows.shape[0], 5)
    assert found.nnz == 0


@pytest.mark.parametrize("count", [0, 1, 2000])
def test_blocks_stay_small_whether_there_are_more_items_or_more_pairs(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs_module, "_CELLS_PER_BLOCK", 1 << 16)
    x = random_csr(3000, 1000, 0.002, 0)
    pairs = np.array(list(combinations(range(100), 2)))[:count].reshape(-1, 2)
    with_pairs(x[:2], pairs)
    tracemalloc.start()
    with_pairs(x, pairs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_500_000  # all users at once would be 3 MB of items or 6 MB of pairs


def test_leaving_out_own_features_is_the_regression_without_them() -> None:
    """The block inverse against twelve regressions; items 5 to 7 are in no pair, item 0 is in several."""
    rng = np.random.default_rng(0)
    pairs = np.array([[0, 1], [0, 2], [0, 4], [1, 2], [3, 4]])
    n_items, n_features = 8, 13
    root = rng.normal(size=(40, n_features))
    g = root.T @ root + 3 * np.eye(n_features)
    p = np.asfortranarray(np.linalg.inv(g).astype(np.float32))
    b = exclude_own(p, pairs, n_items)
    assert b.shape == (n_features, n_items)
    for j in range(n_items):
        own = [j, *(n_items + number for number, pair in enumerate(pairs.tolist()) if j in pair)]
        free = np.setdiff1d(np.arange(n_features), own)
        assert b[free, j] == pytest.approx(np.linalg.solve(g[np.ix_(free, free)], g[free, j]), abs=1e-5)
        assert (b[own, j] == 0).all()


def test_pairs_that_few_users_have_are_no_features(monkeypatch: pytest.MonkeyPatch) -> None:
    x = csr([[0, 1, 2]] * 3 + [[1, 2]] * 2, 4)
    monkeypatch.setattr("recfusion.models.thinning.linear._PAIR_USERS", 4)
    assert ThinningLinear(pairs=5).fit(x).pairs_.tolist() == [[1, 2]]
    monkeypatch.setattr("recfusion.models.thinning.linear._PAIR_USERS", 6)
    model = ThinningLinear(pairs=5).fit(x)
    assert len(model.pairs_) == 0
    assert (model.weights_ == ThinningLinear().fit(x).weights_).all()
