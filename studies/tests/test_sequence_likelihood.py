"""The ordered models as generative ones: every prefix is read as scoring reads it, and likelihoods are complete."""

from itertools import permutations

import numpy as np
import pytest
import torch
from orders import model, rows_of

from ordered import Ordered
from recfusion.core.arrays import Csr
from recfusion.models.sequence.sequential import SequentialRecommender
from sequence_likelihood import draw_histories, ordered_nats

ORDERS = [[0, 1, 2, 3], [1, 2, 3], [2, 3, 0], [3, 0, 1, 2], [0, 1], [1, 2, 3, 0]] * 6
LENGTHS = np.array([0, 0, 6, 12, 18])


def fitted(**settings: float) -> SequentialRecommender:
    rows, extra = rows_of(ORDERS, 5)
    return model(max_epochs=3, **settings).fit(rows, rng=0, extra=extra)


def encoded(made: SequentialRecommender, orders: list[list[int]]) -> Csr:
    rows, extra = rows_of(orders, 5)
    return made.encoded(rows, extra)


@pytest.mark.parametrize("length", [2, 6])
def test_nats_are_those_of_the_scores_after_every_prefix(length: int) -> None:
    """Also of histories that are longer than what the net reads."""
    made, order = fitted(length=length), [3, 1, 4, 0]
    prefixes, extra = rows_of([order[:n] for n in range(4)], 5)
    logits = torch.from_numpy(made.score(prefixes, extra=extra))
    noise = Ordered(0.6)
    found = ordered_nats(made, encoded(made, [order]), LENGTHS, noise)[0]
    share = 0.999 * 18 / 36 + 0.001 / 6
    expected = (-noise.log_prob(logits, torch.tensor(order)), noise.bound(logits, torch.tensor(order)))
    assert (found + np.log(share)).tolist() == pytest.approx([float(one) for one in expected], abs=1e-5)


def test_the_chances_of_all_histories_add_up_to_one() -> None:
    made = fitted(reach=2.0)
    orders = [list(order) for n in range(6) for order in permutations(range(5), n)]
    nats = ordered_nats(made, encoded(made, orders), LENGTHS)
    assert float((-nats[:, 0]).exp().sum()) == pytest.approx(1, abs=1e-4)
    assert (nats[:, 1] >= nats[:, 0] - 1e-9).all()


def test_of_a_model_of_the_next_item_the_bound_is_the_likelihood() -> None:
    made = fitted(reach=0.0, low=1.0)
    nats = ordered_nats(made, encoded(made, [[0, 3, 2], [4, 1]]), LENGTHS)
    assert nats[:, 0].tolist() == pytest.approx(nats[:, 1].tolist())


def test_training_makes_what_it_saw_likelier() -> None:
    rows, extra = rows_of(ORDERS, 5)
    settings = {"reach": 0.0, "low": 1.0, "earliest": 0.0}
    begun = model(max_epochs=1, lr=0.0, **settings).fit(rows, rng=0, extra=extra)
    learned = model(max_epochs=40, lr=1e-2, **settings).fit(rows, rng=0, extra=extra)
    before, after = (ordered_nats(made, encoded(made, ORDERS[:4]), LENGTHS).mean().item() for made in (begun, learned))
    assert after < before - 1


def test_histories_go_on_as_the_likelihood_says() -> None:
    made = fitted(length=2)
    begun = encoded(made, [[3, 1]] * 4000)
    found = draw_histories(made, begun, np.full(4000, 3), torch.Generator().manual_seed(0))
    assert (found[:, :2] == torch.tensor([3, 1])).all()
    prefix, extra = rows_of([[3, 1]], 5)
    chances = torch.from_numpy(made.score(prefix, extra=extra))[0].double()
    chances[[3, 1]] = -torch.inf
    seen = np.bincount(found[:, 2].numpy(), minlength=5) / 4000
    assert seen == pytest.approx(chances.softmax(0).numpy(), abs=0.035)
    nothing = encoded(made, [[], []])
    drawn = draw_histories(made, nothing, np.array([4, 2]), torch.Generator().manual_seed(0))
    assert drawn.shape == (2, 4)
    assert drawn[1, 2:].tolist() == [-1, -1]
    assert len(set(drawn[0].tolist())) == 4
