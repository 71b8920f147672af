"""Settings of new items' columns, chosen on known items that are hidden from validation users."""

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr
from recfusion.data.interactions import Features
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.models.abilities import settled
from recfusion.models.thinning.new_items import Columns, Guessed, Hidden, as_new, choose
from recfusion.models.thinning.signals import ThinningSignals

N, PER = 30, 5  # items, and variants of one product: their only common feature


def shoppers(users: int, seed: int) -> Csr:
    """Return users who like two products and have most variants of these."""
    rng = np.random.default_rng(seed)
    liked = np.repeat(rng.random((users, N // PER)) < 0.35, PER, axis=1)
    return csr_array((liked & (rng.random((users, N)) < 0.7)).astype(np.float32))


def fold(users: int = 60) -> Fold:
    whole = shoppers(users, 1).toarray()
    shown = np.random.default_rng(2).random(whole.shape) < 0.8
    return Fold(np.arange(users), csr_array(whole * shown), csr_array(whole * ~shown)).over(np.arange(N))


ALL = np.ones(N, bool)
PRODUCTS = csr_array(np.repeat(np.eye(N // PER, dtype=np.float32), PER, axis=0))


def test_a_tenth_of_the_items_is_hidden_from_each_user_and_nothing_is_lost() -> None:
    valid = fold()
    hidden = Hidden.of(valid, np.ones(N, bool), np.random.default_rng(0))
    whole = (valid.history + valid.held_out).toarray()[np.isin(valid.users, hidden.fold.users)]
    theirs = hidden.groups == hidden.new_to[:, None]
    assert theirs.sum() == len(theirs) * N / 10
    np.testing.assert_array_equal(hidden.fold.history.toarray(), whole * ~theirs)
    np.testing.assert_array_equal(hidden.fold.held_out.toarray(), whole * theirs)


def test_items_that_nobody_has_in_training_are_not_wanted() -> None:
    known = np.arange(N) >= N // 2
    hidden = Hidden.of(fold(), known, np.random.default_rng(0))
    assert hidden.fold.held_out.nnz
    assert hidden.fold.held_out.indices.min() >= N // 2


def test_scores_as_if_new_are_those_of_a_map_without_the_item() -> None:
    rng = np.random.default_rng(3)
    weights, scale = rng.random((N, N)).astype(np.float32), rng.random(N).astype(np.float32)
    f = csr_array(rng.random((N, 4)).astype(np.float32))
    history = fold().history[:3]
    found = Guessed.of(history, Columns(weights, scale, f, ALL), as_new(f, ALL, 0.7)).as_new(0.5)
    for j in (0, 7, 29):
        alone = as_new(f, np.arange(N) != j, 0.7).map
        columns = (weights + 0.5 * np.eye(N)) * scale  # W + own I, scaled by popularity
        np.testing.assert_allclose(found[:, j], history @ columns @ alone @ f.toarray()[j], rtol=1e-3, atol=1e-5)


def test_variants_of_one_product_are_found_by_what_users_have_of_it() -> None:
    valid, scale = fold(), np.ones(N, np.float32)
    nothing = np.full((N, N), 1e-3, np.float32)  # the columns say nothing: only likeness does
    np.fill_diagonal(nothing, 0)
    columns = Columns(nothing, scale, PRODUCTS, ALL)
    hidden, new = Hidden.of(valid, ALL, np.random.default_rng(0)), as_new(PRODUCTS, ALL, 1.0)
    without, likeness = hidden.judge(columns, new, [(0.0, 1.0), (0.4, 1.0)]).mean(axis=1)
    assert likeness > without + 0.2
    model = ThinningSignals(uses="features", tune_trials=1, new_l2=1.0, lift=1.0)
    choose(model, valid, columns, np.random.default_rng(0))
    assert (model.new_l2_, model.own_) != (1.0, 0.0)


def test_a_fit_chooses_the_settings_and_a_settled_model_keeps_them() -> None:
    extra = Extra(item_features=Features(PRODUCTS, tuple(f"p{n}" for n in range(N // PER))))
    model = ThinningSignals(uses="features", tune_trials=1, l2=5.0).fit(shoppers(200, 0), fold(), rng=0, extra=extra)
    assert {"new_l2", "own", "lift"} <= model.chosen().keys()
    assert settled(model).own == model.own_
    given = ThinningSignals(uses="features", tune_trials=1, l2=5.0, own=0.7, new_l2=2.0)
    given.fit(shoppers(200, 0), fold(), rng=0, extra=extra)
    assert (given.own_, given.new_l2_) == (0.7, 2.0)
