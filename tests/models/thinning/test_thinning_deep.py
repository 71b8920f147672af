"""The deep denoiser of thinned rows: its loss against the dense objective, its learning rate, and resuming."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import block_diag, csr_array
from torch import Tensor

from conftest import csr, random_csr
from recfusion.core.arrays import Csr, keep_entries, row_numbers
from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.split import split
from recfusion.diffusion.objectives import multinomial_removed
from recfusion.models.abilities import fit_in_epochs
from recfusion.models.base import Shape
from recfusion.models.registry import make_model
from recfusion.models.thinning.deep import ThinningDeep, co_occurrence_features
from recfusion.nets.sparse import SparseRows
from recfusion.training.batches import dense, shuffled_batches
from recfusion.training.epoch import Checkpoint

TRAIN = random_csr(30, 12, 0.3, 0)
SMALL: dict[str, Any] = {"width": 8, "latent": 4, "layers": 2}
VECTORS = {"encoder.0.first.weight": 3.0, "decoder.weight": 1.0}  # of items, and how much longer they begin


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made(train: Csr, **settings: Any) -> ThinningDeep:
    """Return a model with fresh weights."""
    model = ThinningDeep(**SMALL | settings)
    model.prepare(train)
    torch.manual_seed(0)
    model.net_ = model.make_net(train.shape[1])
    return model


def survivors(x0: Csr, model: ThinningDeep, seed: int) -> Csr:
    """Return x_t by the draws that the loss makes of `seed`: a share for each user, then a number for each one."""
    draws = rng(seed)
    a = model.low + (model.high - model.low) * torch.rand(x0.shape[0], generator=draws).numpy()
    return keep_entries(x0, torch.rand(x0.nnz, generator=draws).numpy() < a[row_numbers(x0)])


def gradients(model: ThinningDeep, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.net_.parameters())))


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_is_the_dense_likelihood_of_the_removed_items_with_its_gradient(seed: int) -> None:
    model = made(TRAIN, b=0.0)
    xt = survivors(TRAIN, model, seed)
    assert 0 < xt.nnz < TRAIN.nnz
    found = model.loss(TRAIN, model.net_, rng(seed))
    expected = multinomial_removed(model.logits(SparseRows.of(xt)), dense(TRAIN), dense(xt)).mean()
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    for ours, plain in zip(gradients(model, found), gradients(model, expected), strict=True):
        assert torch.allclose(ours, plain, atol=1e-6)


@pytest.mark.parametrize("b", [0.5, 1.0])
def test_users_are_weighted_by_a_power_of_their_length_and_the_weights_keep_their_sum(b: float) -> None:
    """As in the linear denoiser: the sum of weight times length stays the number of interactions."""
    model = made(TRAIN, b=b)
    xt = survivors(TRAIN, model, 0)
    costs = multinomial_removed(model.logits(SparseRows.of(xt)), dense(TRAIN), dense(xt))
    lengths = torch.from_numpy(np.diff(TRAIN.indptr)).float().clamp(min=1)
    weights = lengths**-b * (lengths.sum() / (lengths ** (1 - b)).sum())
    found = model.loss(TRAIN, model.net_, rng(0))
    assert found.item() == pytest.approx((weights * costs).mean().item(), rel=1e-5)
    assert found.item() != pytest.approx(costs.mean().item(), rel=1e-3)


def test_items_of_the_same_users_begin_alike_and_others_do_not() -> None:
    """Users 0 to 5 have items 0 to 2, the others 3 to 5, and nobody has the last: its vector is nothing."""
    train = csr([[0, 1, 2]] * 6 + [[3, 4, 5]] * 7, 7)
    features = co_occurrence_features(train, 4)
    assert np.linalg.norm(features, axis=1) == pytest.approx([1] * 6 + [0], abs=1e-5)
    model = made(train)
    drawn = {name: model.net_.get_parameter(name).detach().clone() for name in VECTORS}
    known = torch.from_numpy(model._features)
    model.training_module()
    for name, gain in VECTORS.items():
        vectors = model.net_.get_parameter(name).detach()
        of_first, of_second = vectors[:3], vectors[3:6]
        assert torch.allclose(of_first, of_first[:1].expand(3, -1), atol=1e-3)
        assert torch.allclose(of_second, of_second[:1].expand(3, -1), atol=1e-3)
        assert not torch.allclose(of_first[0], of_second[0], atol=1e-2)
        assert (vectors[6] == 0).all()
        assert torch.allclose(vectors, gain * known @ drawn[name][: known.shape[1]], atol=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_shops_without_a_common_user_are_told_apart_whatever_the_basis(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eigenvalue 1 has a vector for each shop, in any rotation: popularity, their sum, must go, not the last."""
    drawn = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda _: drawn(seed))
    shops = block_diag([random_csr(60, 15, 0.3, 0), random_csr(60, 15, 0.3, 1)], "csr")
    features = co_occurrence_features(csr_array(shops), 5)
    of_items = features @ features.T
    assert of_items[:15, 15:].mean() < -0.3
    assert min(of_items[:15, :15].mean(), of_items[15:, 15:].mean()) > 0.3


def test_features_are_the_leading_eigenvectors_without_popularity() -> None:
    train = random_csr(60, 9, 0.4, 1)
    x = train.toarray().astype(np.float64)
    x /= np.sqrt(np.maximum(x.sum(0), 1) * np.maximum(x.sum(1), 1)[:, None])
    values, vectors = np.linalg.eigh(x.T @ x)
    assert abs(vectors[:, -1]) == pytest.approx(np.sqrt(train.sum(axis=0) / train.sum()))  # popularity
    expected = vectors[:, -4:-1] * np.sqrt(values[-4:-1])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = co_occurrence_features(train, 3)
    assert found @ found.T == pytest.approx(expected @ expected.T, abs=1e-3)  # signs are arbitrary


def test_without_directions_vectors_stay_as_they_were_drawn() -> None:
    model = made(TRAIN, directions=0)
    drawn = {name: model.net_.get_parameter(name).detach().clone() for name in VECTORS}
    model.training_module()
    assert all((model.net_.get_parameter(name) == before).all() for name, before in drawn.items())


@pytest.mark.parametrize("train", [csr([[0], [0]], 1), csr([[0, 1, 2]], 3), csr([[], []], 4)], ids=str)
def test_features_of_next_to_nothing_are_finite(train: Csr) -> None:
    features = co_occurrence_features(train, 300)
    assert len(features) == train.shape[1]
    assert np.isfinite(features).all()


def test_the_memory_of_the_start_is_foreseen_and_refused_where_it_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million users of 500 items: 317 numbers of 4 bytes for each of them are more than the network takes."""
    many = Shape(1_000_000, 500, 20_000_000)
    assert ThinningDeep().fit_bytes(many) > 4 * 317 * 1_000_000 > ThinningDeep(directions=0).fit_bytes(many)
    monkeypatch.setattr("recfusion.core.memory.available_bytes", lambda: 1000)
    with pytest.raises(InputError, match="memory"):
        made(TRAIN)


def test_the_loss_of_equal_logits_is_that_of_a_fair_die_with_the_missing_sides() -> None:
    """Of items 0 to 3 of six, r are removed; those that survive are no sides of the die."""
    x0 = csr([[0, 1, 2, 3]], 6)
    model = made(x0)
    for parameter in model.net_.parameters():
        torch.nn.init.zeros_(parameter)
    for seed in range(5):
        n_removed = 4 - survivors(x0, model, seed).nnz
        expected = n_removed * np.log(6 - (4 - n_removed))
        assert model.loss(x0, model.net_, rng(seed)).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("x0", [csr([[0, 2], [1]], 4), csr([[0, 1, 2, 3]], 4), csr([[], []], 4)], ids=str)
def test_a_user_from_whom_nothing_is_removed_costs_nothing(x0: Csr) -> None:
    """A share of 1 survives: also where the user has every item, or none."""
    model = made(TRAIN[:, list(range(4))], low=1.0, high=1.0)
    loss = model.loss(x0, model.net_, rng())
    assert loss.item() == 0
    assert all((gradient == 0).all() for gradient in gradients(model, loss))


def test_training_without_noise_or_without_items_goes_on() -> None:
    for train, settings in ((TRAIN, {"low": 1.0, "high": 1.0}), (csr([[], [0, 1], []], 12), {})):
        model = ThinningDeep(**SMALL | settings, max_epochs=2).fit(train, rng=0)
        assert np.isfinite(model.score(TRAIN)).all()


def test_the_learning_rate_rises_for_ten_epochs_and_falls_to_almost_nothing() -> None:
    model = ThinningDeep(lr=1.0, max_epochs=36)
    rates = [model.learning_rate(epoch) for epoch in range(1, 37)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[4] == pytest.approx(0.5 * 0.5 * (1 + np.cos(np.pi * 4 / 36)))
    assert np.argmax(rates) == 9
    assert (np.diff(rates[:10]) > 0).all()
    assert (np.diff(rates[9:]) < 0).all()
    assert 0.8 < max(rates) <= 1
    assert 0 < rates[-1] < 0.002


@pytest.mark.parametrize("max_epochs", [1, 2, 7, 10, 300])
def test_the_learning_rate_stays_within_its_bounds_whatever_the_number_of_epochs(max_epochs: int) -> None:
    model = ThinningDeep(lr=1.0, max_epochs=max_epochs)
    rates = np.array([model.learning_rate(epoch) for epoch in range(1, max_epochs + 1)])
    assert (rates > 0).all()
    assert (rates <= 1).all()
    assert rates[-1] < 0.6 or max_epochs == 1


@pytest.mark.parametrize("n_users", [10, 11, 37, 45, 750, 4828, 6000])
def test_an_epoch_has_at_least_ten_batches_and_none_is_larger_than_asked_for(n_users: int) -> None:
    model = ThinningDeep()
    sizes = [rows.shape[0] for rows in shuffled_batches(csr([[0]] * n_users, 1), model.batch_rows(n_users), rng())]
    assert sum(sizes) == n_users
    assert len(sizes) >= 10
    assert max(sizes) <= model.batch_size
    if n_users >= 45:
        assert len(sizes) <= max(12, -(-n_users // model.batch_size))  # no smaller than they need be


def test_fewer_than_ten_users_are_taken_one_by_one() -> None:
    assert ThinningDeep().batch_rows(7) == 1
    assert ThinningDeep().batch_rows(0) == 1


def test_an_interrupted_training_ends_in_the_same_weights_at_the_same_rates(
    groups: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    rate = ThinningDeep.learning_rate

    def watched(self: ThinningDeep, epoch: int) -> float:
        asked.append(epoch)
        return rate(self, epoch)

    monkeypatch.setattr(ThinningDeep, "learning_rate", watched)
    parts = split(groups)
    settings = {**SMALL, "max_epochs": 5, "patience": 5}
    whole = make_model("thinning-deep", settings).fit(parts.train, parts.valid, rng=3)
    checkpoint = Checkpoint(tmp_path / "run", "this run")
    broken = fit_in_epochs(
        make_model("thinning-deep", settings), parts.train, parts.valid, rng=3, checkpoint=checkpoint
    )
    assert [next(broken).number, next(broken).number] == [1, 2]  # then it is interrupted
    resumed = make_model("thinning-deep", settings)
    numbers = [epoch.number for epoch in fit_in_epochs(resumed, parts.train, parts.valid, rng=3, checkpoint=checkpoint)]
    assert numbers == [3, 4, 5]
    assert asked == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]
    for key, array in whole.state().items():
        assert (array == resumed.state()[key]).all(), key


def test_a_loaded_model_scores_as_before_and_knows_the_lengths() -> None:
    model = ThinningDeep(**SMALL, max_epochs=2).fit(TRAIN, rng=0)
    assert model.lengths_.tolist() == np.bincount(np.diff(TRAIN.indptr)).tolist()
    loaded = ThinningDeep(**SMALL, max_epochs=2)
    loaded.load_state(model.state(), model.chosen(), 12)
    assert (loaded.score(TRAIN) == model.score(TRAIN)).all()
    assert (loaded.lengths_ == model.lengths_).all()


def test_rare_items_enter_with_more_weight() -> None:
    train = csr([[0, 1], [0, 1], [0], [0]], 3)  # four users, two, none
    weights = made(train, input_power=0.5).item_weights_
    assert weights[1] / weights[0] == pytest.approx(2**0.5)
    assert np.isfinite(weights).all()
    assert made(train, input_power=0).item_weights_.tolist() == [1, 1, 1]


def test_learning_lowers_the_loss(groups: Interactions) -> None:
    model = ThinningDeep(**SMALL, max_epochs=30, lr=2e-2, weight_decay=0.0)
    losses = [epoch.loss for epoch in model.epochs(split(groups).train, rng=0)]
    assert np.mean(losses[-5:]) < 0.85 * np.mean(losses[:5])


def test_before_it_learns_it_ranks_by_popularity_and_decay_does_not_take_that_away() -> None:
    train = csr([[0, 1], [0, 1], [0], [0]], 3)  # four users, two, none: 2, 1 and next to 0 in units of the mean
    model = made(train)
    model.training_module()
    bias = model.net_.get_parameter("decoder.bias")
    assert bias.tolist() == pytest.approx([np.log(2), 0, np.log(1e-3)], abs=1e-6)
    fair = made(train, prior=0)
    fair.training_module()
    assert fair.net_.get_parameter("decoder.bias").tolist() == [0, 0, 0]
    still = ThinningDeep(**SMALL, max_epochs=5, lr=1e-6, weight_decay=3e5).fit(train, rng=0)  # it only decays
    assert still.net_.get_parameter("decoder.bias").tolist() == pytest.approx(bias.tolist(), abs=1e-4)
    weights, fresh = (one.net_.get_parameter("decoder.weight").abs().max() for one in (still, made(train)))
    assert weights < 0.5 * fresh


def test_a_fit_that_continues_starts_with_the_weights_and_repeats_the_last_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = ThinningDeep(**SMALL).fit(TRAIN[:20], rng=0)
    assert (first.continued().fit(TRAIN, rng=1).score(TRAIN) == replace(first).fit(TRAIN, rng=1).score(TRAIN)).all()
    monkeypatch.setattr("recfusion.models.thinning.deep.LARGE", 1)  # small data is learned from scratch
    model = first.continued()
    assert (model, model.chosen()) == (first, first.chosen())
    still = replace(model, lr=0.0).fit(TRAIN[:20], rng=1)
    assert (still.score(TRAIN) == first.score(TRAIN)).all()
    rates = [(epoch.of, model.learning_rate(number)) for number, epoch in enumerate(model.epochs(TRAIN, rng=1), 1)]
    assert rates == [(4, first.learning_rate(epoch)) for epoch in (11, 12, 13, 14)]
    assert model.score(TRAIN) == pytest.approx(first.score(TRAIN), abs=2)
    assert (model.score(TRAIN) != first.score(TRAIN)).any()
    assert model.start is None  # the earlier weights are not kept in memory
    assert [epoch.of for epoch in model.epochs(TRAIN, rng=1)] == [14] * 14
    assert [epoch.of for epoch in replace(first.continued(), max_epochs=1).epochs(TRAIN, rng=1)] == [1]
