"""The diffusion figure: its chains and its labels."""

import numpy as np
import pytest
import torch

from drawn import texts
from recfusion.core.steps import listening
from recfusion.data.interactions import Interactions
from recfusion.diffusion import Binomial, make_schedule, one_step
from recfusion.paper.diffusion_figure import OPTIONS, STEPS, Chains, diffusion_chains, draw_diffusion, with_evidence


@pytest.fixture
def shown(groups: Interactions) -> tuple[Chains, ...]:
    return diffusion_chains(groups, epochs=1, n_users=6, n_items=30)


def test_every_option_shows_both_chains_at_all_steps(shown: tuple[Chains, ...]) -> None:
    assert [chains.option.name for chains in shown] == ["a", "b", "c"]
    for chains in shown:
        assert chains.forward.shape == chains.reverse.shape == (STEPS + 1, 6, 30)
        assert set(np.unique(chains.forward)) <= {0.0, 1.0}
        assert chains.reverse.min() >= 0
        assert chains.reverse.max() <= 1


def test_all_options_start_at_the_same_users_and_return_from_their_own_noise(shown: tuple[Chains, ...]) -> None:
    first = shown[0].forward[0]
    assert 0 < first.sum() < first.size
    for chains in shown:
        np.testing.assert_array_equal(chains.forward[0], first)
        np.testing.assert_array_equal(chains.reverse[-1], chains.forward[-1])


def test_users_stand_in_the_order_of_their_activity(groups: Interactions) -> None:
    everything = diffusion_chains(groups, epochs=1, n_users=6, n_items=groups.n_items, options=OPTIONS[:1])
    lengths = everything[0].forward[0].sum(1)
    assert (np.diff(lengths) <= 0).all()


def test_thinning_takes_ones_away_until_nearly_none_is_left(shown: tuple[Chains, ...]) -> None:
    thinning = shown[2]
    means = thinning.forward.mean((1, 2))
    assert (np.diff(means) <= 0).all()
    assert means[-1] < 0.1 * means[0]
    assert (np.diff(thinning.forward, axis=0) <= 0).all()  # a zero never turns to one
    process = OPTIONS[2].process(torch.full((30,), 0.2, dtype=torch.float64))
    assert isinstance(process, Binomial)
    assert float(process.survival(STEPS)) == 0.5**STEPS


def test_what_thinning_left_stays_on_the_way_back(shown: tuple[Chains, ...]) -> None:
    thinning = shown[2]
    left = thinning.forward[-1] == 1
    np.testing.assert_allclose(thinning.reverse[:, left], 1, atol=1e-5)


def test_half_of_all_bits_flipped_is_a_coin_toss_at_once(shown: tuple[Chains, ...]) -> None:
    coin = shown[1]
    assert np.abs(coin.forward.mean((1, 2))[1:] - 0.5).max() < 0.2  # 180 tosses: .2 is more than five deviations
    np.testing.assert_allclose(coin.reverse[1:-1], 0.5, atol=1e-5)  # all noise is equally likely to come from all noise


def test_a_hundredth_of_all_bits_flipped_leaves_nearly_everything(shown: tuple[Chains, ...]) -> None:
    flips = shown[0].forward
    assert (flips[-1] != flips[0]).mean() < 0.15


def test_the_same_seed_gives_the_same_numbers(groups: Interactions, shown: tuple[Chains, ...]) -> None:
    again = diffusion_chains(groups, epochs=1, n_users=6, n_items=30)
    for one, other in zip(shown, again, strict=True):
        np.testing.assert_array_equal(one.forward, other.forward)
        np.testing.assert_array_equal(one.reverse, other.reverse)


def test_evidence_turns_prior_odds_into_the_exact_posterior() -> None:
    """One flip with probability .1 and a prior of .3: p(x^0 = 1 | x^1 = 1) = .27/(.27 + .07)."""
    process = Binomial.bit_flips(make_schedule("constant", 1, high=0.1))
    prior = float(np.log(0.3 / 0.7))
    denoiser = with_evidence(process, lambda x, t: torch.full_like(x, prior))
    x1 = torch.tensor([[0.0, 1.0]])
    found = torch.sigmoid(denoiser(x1, torch.tensor([1])))
    torch.testing.assert_close(found, torch.tensor([[0.03 / (0.03 + 0.63), 0.27 / (0.27 + 0.07)]]))
    torch.testing.assert_close(one_step(process, denoiser, x1), found)


def test_every_network_is_reported(groups: Interactions) -> None:
    heard: list[str] = []
    with listening(heard.append):
        diffusion_chains(groups, epochs=1)
    assert heard == [f"network of option ({name})" for name in "abc"]


def test_the_diffusion_figure_labels_options_rows_steps_and_means(groups: Interactions) -> None:
    shown = diffusion_chains(groups, epochs=1, n_users=5, n_items=20)
    written = texts(draw_diffusion(shown, groups.name, 1))
    for option in OPTIONS:
        assert f"({option.name}) {option.title}" in written
    assert sum(text.startswith("forward") and "→" in text for text in written) == 3
    assert sum("learned reverse" in text for text in written) == 3
    assert [text.split("$")[1] for text in written if text.startswith("$t = ")] == [f"t = {t}" for t in range(7)]
    for chains in shown:
        assert {f"mean {mean:.3f}" for mean in chains.forward.mean((1, 2))} <= set(written)
    assert any("5 test users" in text and "20 most popular items" in text and "1 epoch " in text for text in written)
