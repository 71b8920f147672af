"""Latent diffusion: codes of iALS, the noise of a history's code, and denoisers whose best form is known."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor

from latent import LatentDiffusion
from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.data.split import Fold
from recfusion.diffusion import ancestral, elbo
from recfusion.models.factors.ials import IALS

SMALL: dict[str, Any] = {"factors": 4, "iterations": 3, "tune_trials": 0, "width": 16, "max_epochs": 2, "T": 20}


def rows(n_users: int, n_items: int = 12, seed: int = 0) -> Csr:
    """Users of two kinds, each of whom has most items of one half."""
    rng = np.random.default_rng(seed)
    likes = np.where((np.arange(n_users)[:, None] + (np.arange(n_items) < n_items // 2)) % 2, 0.7, 0.1)
    return csr_array((rng.random((n_users, n_items)) < likes).astype(np.float32))


def model(**settings: Any) -> LatentDiffusion:
    return LatentDiffusion(**{**SMALL, **settings})


def test_codes_are_centred_with_a_mean_square_of_one() -> None:
    train = rows(60)
    codes = model().fit(train, rng=0).codes(train)
    assert codes.mean(0) == pytest.approx(np.zeros(4), abs=1e-5)
    assert float((codes**2).mean()) == pytest.approx(1, abs=1e-5)


def test_without_noise_the_scores_are_those_of_ials() -> None:
    train = rows(60)
    plain = IALS(factors=4, iterations=3, tune_trials=0).fit(train, rng=np.random.default_rng(3))
    latent = model(noise=0.0).fit(train, rng=np.random.default_rng(3))
    assert latent.score(train[:5]) == pytest.approx(plain.score(train[:5]), abs=1e-5)


def test_a_history_is_denoised_from_the_step_whose_noise_is_nearest() -> None:
    latent = model(schedule="harmonic", T=10).fit(rows(60), rng=0)  # 1 - abar_t = t / 10
    asked: list[tuple[Tensor, Tensor]] = []

    def denoiser(xt: Tensor, t: Tensor) -> Tensor:
        asked.append((xt, t))
        return torch.zeros_like(xt)

    latent.denoiser = denoiser  # type: ignore[method-assign]
    latent.noise_ = 0.32
    history = rows(3)
    scores = latent.score(history)
    assert asked[0][1].tolist() == [3, 3, 3]
    assert asked[0][0].numpy() == pytest.approx(np.sqrt(0.7) * latent.codes(history), abs=1e-5)
    assert scores == pytest.approx(np.tile(latent.items_ @ latent.mean_, (3, 1)), abs=1e-5)  # codes of 0


def test_training_begins_at_the_best_denoiser_of_standard_normal_codes() -> None:
    latent = model(lr=0.0, weight_decay=0.0).fit(rows(60), rng=0)
    z = torch.randn(20_000, 4, generator=torch.Generator().manual_seed(0))
    process, t = latent.process(), torch.full((20_000,), 7)
    with torch.no_grad():
        found = elbo(process, latent.denoiser, z, torch.Generator().manual_seed(1))
        out = latent.denoiser(process.q_sample(z, t, torch.Generator().manual_seed(2)), t)
    abar = float(process.schedule.alpha_bar(7))
    assert float(((out - z) ** 2).mean()) == pytest.approx(1 - abar, rel=0.02)  # the variance that is left of z
    exact = 0.5 * (z.square() + np.log(2 * np.pi)).sum(1)  # -log p(z)
    assert exact.mean() <= found.total.mean() + 0.02


def test_the_bound_of_the_best_denoiser_tends_to_the_exact_density_and_samples_have_its_spread() -> None:
    """Codes N(0, diag(4, 1, .25, .01)): the best denoiser shrinks each direction by its own share of noise."""
    variance = torch.tensor([4.0, 1.0, 0.25, 0.01])
    latent = model(T=400)
    process = latent.process()

    def best(xt: Tensor, t: Tensor) -> Tensor:
        abar = process.schedule.alpha_bar(t).float()[:, None]
        return abar.sqrt() * variance / (abar * variance + 1 - abar) * xt

    rng = torch.Generator().manual_seed(0)
    z = torch.randn(2000, 4, generator=rng) * variance.sqrt()
    exact = 0.5 * (z.square() / variance + (2 * np.pi * variance).log()).sum(1)
    gap = float((elbo(process, best, z, rng).total - exact).mean())
    assert 0 < gap < 0.1
    drawn = ancestral(process, best, (4000, 4), rng)
    assert drawn.var(0).tolist() == pytest.approx(variance.tolist(), rel=0.1)


def test_a_trained_denoiser_is_near_the_best_linear_one_where_codes_are_normal() -> None:
    variance = np.array([3.0, 0.6, 0.3, 0.1], np.float32)
    codes = (np.random.default_rng(0).standard_normal((4000, 4)) * np.sqrt(variance)).astype(np.float32)
    latent = model(width=64, max_epochs=25, weight_decay=0.0, lr=3e-3, noise=0.3)
    latent.noise_ = 0.3
    latent.before_training = lambda *_: None  # type: ignore[method-assign]
    latent.encoded = lambda history, extra: csr_array(codes)  # type: ignore[method-assign]
    latent.fit(csr_array((4000, 4), dtype=np.float32), rng=0)
    process = latent.process()
    t = 8
    abar, rng = float(process.schedule.alpha_bar(t)), torch.Generator().manual_seed(1)
    z = torch.from_numpy((np.random.default_rng(1).standard_normal((4000, 4)) * np.sqrt(variance)).astype(np.float32))
    with torch.no_grad():
        out = latent.denoiser(process.q_sample(z, t, rng), torch.full((len(z),), t))
    least = variance * (1 - abar) / (abar * variance + 1 - abar)  # what nobody can know of each direction
    untrained = abar * (1 - abar) + (1 - abar) ** 2 * variance
    found = float(((out - z) ** 2).sum(1).mean())
    assert 0.97 * least.sum() < found < 1.1 * least.sum()
    assert untrained.sum() > 1.3 * least.sum()


def test_the_noise_is_chosen_on_validation_users_or_stays_as_given() -> None:
    train, other = rows(60), rows(60, seed=1)
    other = other[other[:, ::3].sum(1) > 0][:30]
    hidden = csr_array(other.toarray() * (np.arange(12) % 3 == 0)).astype(np.float32)
    valid = Fold(np.arange(30), csr_array(other - hidden), hidden)
    chosen = model().fit(train, valid, rng=0)
    assert chosen.chosen()["noise"] == chosen.noise_
    again = chosen.settled()
    assert (again.noise, again.l2, again.max_epochs) == (chosen.noise_, chosen.l2_, chosen.best_epoch_)
    assert model(noise=0.25).fit(train, valid, rng=0).noise_ == 0.25
    assert model().fit(train, rng=0).noise_ == 0.1


def test_a_saved_model_gives_the_same_scores_and_wrong_shapes_are_refused() -> None:
    train = rows(60)
    latent = model().fit(train, rng=0)
    again = model()
    again.load_state(latent.state(), latent.chosen(), 12)
    assert np.array_equal(again.score(train), latent.score(train))
    with pytest.raises(ValueError, match="mean_ has the shape"):
        model().load_state(latent.state() | {"mean_": np.zeros(3, np.float32)}, latent.chosen(), 12)


def test_noise_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="below 1, got 1: lower it"):
        model(noise=1.0)
