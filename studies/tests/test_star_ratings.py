"""Diffusion of star ratings: states, noise, loss and ranking by hand, and refused input."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from recfusion.core.errors import InputError
from recfusion.data.signals import Extra
from recfusion.diffusion import ancestral, elbo
from recfusion.evaluation.topk import top_k
from star_ratings import RecFusionRatings

LIKES = csr_array(np.array([[1, 0, 1, 0], [0, 1, 0, 0]], np.float32))
EXTRA = Extra(
    grades=csr_array(np.array([[5, 0, 4, 0], [0, 4, 0, 0]], np.float32)),
    disliked=csr_array(np.array([[0, 2, 0, 0], [0, 0, 0, 1]], np.float32)),
)
SMALL: dict[str, Any] = {"width": 16, "layers": 1, "max_epochs": 1, "weight_decay": 0.0}


def model(**settings: Any) -> RecFusionRatings:
    return RecFusionRatings(**{**SMALL, **settings})


def test_states_are_the_numbers_of_ratings_including_dislikes() -> None:
    assert model().encoded(LIKES, EXTRA).toarray().tolist() == [[5, 2, 4, 0], [0, 4, 0, 1]]
    assert model().encoded(LIKES, None).toarray().tolist() == [[4, 0, 4, 0], [0, 4, 0, 0]]
    halves = model(levels=10, step=0.5).encoded(LIKES, EXTRA)
    assert halves.toarray().tolist() == [[10, 4, 8, 0], [0, 8, 0, 2]]


@pytest.mark.parametrize("wrong", [0.0, 3.5, 6.0])
def test_a_rating_off_the_scale_is_one_sentence_with_the_value_and_the_scale(wrong: float) -> None:
    grades = EXTRA.grades
    assert grades is not None
    bad = Extra(grades=csr_array((np.array([5, wrong, 4], np.float32), grades.indices, grades.indptr), grades.shape))
    with pytest.raises(InputError, match=rf"ratings 1, 2, 3, 4, 5 in the data, got {wrong:g}: correct it, or set"):
        model().fit(LIKES, extra=bad)
    with pytest.raises(InputError, match=rf"ratings 1, 2, 3, 4, 5 in the history, got {wrong:g}: correct it\.$"):
        model().encoded(LIKES, bad)  # its scale is not a caller's to set
    with pytest.raises(InputError, match="ratings 1, 2, 3 in good, got 4"):
        model(levels=3)


def test_noise_that_adds_items_cannot_be_ranked_by_what_it_removed() -> None:
    with pytest.raises(InputError, match="absorbing or graded, got 'uniform': choose objective 'simple' or 'elbo'"):
        model(transitions="uniform")
    with pytest.raises(InputError, match="0 < low < high < 1"):
        model(low=0.9, high=0.1)


def test_the_untrained_net_has_the_shares_of_the_states() -> None:
    made = model(levels=2, good=2.0)
    states = csr_array(np.array([[2, 0, 0], [2, 1, 0], [1, 0, 0]], np.float32))
    made.prepare(states)
    assert made.shares_.tolist() == pytest.approx([6 / 12, 3 / 12, 3 / 12])
    made.net_ = made.make_net(3)
    made.training_module()
    torch.nn.init.zeros_(made._decoder.weight)
    found = made.denoiser(torch.zeros(1, 3), torch.ones(1)).softmax(2)[0]
    assert found[0].tolist() == pytest.approx([0.5 / 4, 1.25 / 4, 2.25 / 4])
    assert found[2].tolist() == pytest.approx([3.5 / 4, 0.25 / 4, 0.25 / 4])


@pytest.mark.parametrize("objective", ["ranking", "simple"])
def test_scores_are_the_probability_of_a_good_rating_or_the_expected_rating(objective: str) -> None:
    logits = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(0))
    for ranks_by, worth in (("good", [0, 0, 0, 0, 1, 1]), ("expected", [0, 1, 2, 3, 4, 5])):
        made = model(objective=objective, ranks_by=ranks_by)
        made.net_ = lambda rows: logits  # type: ignore[assignment]
        p = logits.softmax(2) if objective == "simple" else logits.exp()
        expected = (p @ torch.tensor(worth, dtype=torch.float32)).log()
        assert made.score(LIKES[:1])[0].tolist() == pytest.approx(expected[0].tolist(), abs=1e-5)


def test_the_ranking_loss_is_that_of_removed_items_with_ratings_among_all_unseen() -> None:
    made = model(T=1, low=0.4999, high=0.5)
    states = csr_array(np.array([[5, 2, 4, 0]], np.float32))
    made.prepare(states)
    made.net_ = made.make_net(4)
    torch.nn.init.zeros_(made._decoder.weight)
    torch.nn.init.zeros_(made._decoder.bias)
    rng = torch.Generator().manual_seed(0)
    found = {round(float(made.loss(states, made.net_, rng).detach()), 3) for _ in range(60)}
    # Removed are none to three of the three grades, each one of 5 (4 - seen) cells.
    assert found == {round(n * float(np.log(5 * (1 + n))), 3) for n in range(4)}


@pytest.mark.parametrize("transitions", ["absorbing", "graded", "uniform", "ordinal"])
def test_every_process_has_a_bound_and_samples(transitions: str) -> None:
    made = model(transitions=transitions, objective="elbo", T=3).fit(LIKES, extra=EXTRA, rng=0)
    x0 = torch.from_numpy(made.encoded(LIKES, EXTRA).toarray())
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        bound = elbo(made.process(), made.denoiser, x0, rng)
        sample = ancestral(made.process(), made.denoiser, (5, 4), rng)
    assert torch.isfinite(bound.total).all()
    assert (bound.total > 0).all()
    assert set(sample.flatten().tolist()) <= set(range(6))


def test_items_that_one_kind_of_user_rates_high_rank_before_those_it_rates_low() -> None:
    """Even users give 5 stars to items 0..4 and 1 star to 5..9, odd users the other way round."""
    stars = np.array([[5 if (item < 5) == (user % 2 == 0) else 1 for item in range(10)] for user in range(60)])
    shown = np.random.default_rng(0).random(stars.shape) < 0.8
    likes = csr_array(((stars == 5) & shown).astype(np.float32))
    extra = Extra(
        grades=csr_array(np.where((stars == 5) & shown, 5, 0).astype(np.float32)),
        disliked=csr_array(np.where((stars == 1) & shown, 1, 0).astype(np.float32)),
    )
    made = model(width=32, max_epochs=15, lr=1e-2).fit(likes, extra=extra, rng=0)
    history = csr_array(np.array([[1, 1, 0, 0, 0, 0, 0, 0, 0, 0]] * 1, np.float32))
    known = Extra(grades=csr_array(5 * history.toarray()))
    assert set(top_k(made.score(history, extra=known), history, 3)[0][0].tolist()) == {2, 3, 4}
    nothing = csr_array((1, 10), dtype=np.float32)
    low = Extra(grades=nothing, disliked=csr_array(history.toarray()))  # the same two items, with one star
    assert set(top_k(made.score(nothing, extra=low), nothing, 5)[0][0].tolist()) == {5, 6, 7, 8, 9}
