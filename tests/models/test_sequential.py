"""Models of ordered histories: what the noise leaves and asks for, and that order is learned and used."""

import numpy as np
import pytest
import torch
from orders import SMALL, model, rows_of

from recfusion.core.errors import InputError
from recfusion.evaluation.topk import top_k
from recfusion.models.registry import make_model
from recfusion.models.sequence.sequential import SequentialRecommender, draw_batch, items_in_order, pad


def test_entries_stand_from_the_oldest_to_the_newest_and_equal_times_in_the_order_of_columns() -> None:
    rows, extra = rows_of([[3, 0, 2], [1]], 4)
    assert extra.times is not None
    encoded = model().encoded(rows, extra)
    assert items_in_order(encoded).tolist() == [3, 0, 2, 1]
    assert items_in_order(model().encoded(rows, None)).tolist() == [0, 2, 3, 1]
    drawn = {tuple(items_in_order(model().encoded(rows, None), np.random.default_rng(seed))) for seed in range(20)}
    assert len(drawn) == 6  # the orders of three entries


def test_stretches_are_filled_up_with_the_number_beyond_the_items() -> None:
    found = pad(np.array([4, 2, 7, 1]), np.array([0, 2, 4]), np.array([2, 1, 0]), 9)
    assert found.tolist() == [[4, 2], [7, 9], [9, 9]]


def test_what_is_newer_than_a_place_is_asked_for_and_the_rest_is_masked() -> None:
    orders = [[5, 3, 0, 2, 1], [4, 1]]
    rows, extra = rows_of(orders, 6)
    made = model(low=0.5, high=0.5, length=3, reach=2.0)
    for seed in range(10):
        example = draw_batch(made.encoded(rows, extra), made, np.random.default_rng(seed))
        for user, order in enumerate(orders):
            for place in range(made.places):
                which = user * made.places + place
                past, asked = (
                    [int(item) for at, item in zip(*pairs, strict=True) if at == which]
                    for pairs in (example.past, example.targets)
                )
                cut = len(past)
                assert (past, asked) == (order[:cut], order[cut:])  # each entry is either, and the order decides
                before = example.items[user, : int(example.places[user, place])].tolist()
                assert before == [item for item in past if item in before]  # what is read is left of what is past
                assert not before or before[-1] == past[-1]  # and its newest is the newest of that
                weights = example.weights[example.targets[0] == which].tolist()
                assert weights == pytest.approx(np.exp(-np.arange(len(asked)) / 2).tolist())


def test_entries_far_ahead_are_not_asked_for() -> None:
    rows, extra = rows_of([list(range(40))], 40)
    made = model(low=1.0, reach=1.0, length=1, places=1, earliest=0.0)
    example = draw_batch(made.encoded(rows, extra), made, np.random.default_rng(0))
    assert 1 <= len(example.weights) <= 7  # e^-7 is below a thousandth


def test_the_next_item_alone_is_asked_for_by_its_opponent() -> None:
    order = [5, 3, 0, 2, 1]
    rows, extra = rows_of([order], 6)
    made = make_model("sasrec", {**SMALL, "places": 40}, text=False)
    assert isinstance(made, SequentialRecommender)
    example = draw_batch(made.encoded(rows, extra), made, np.random.default_rng(0))
    place, item = example.targets
    found = {(int(example.places[0, at]), int(one)) for at, one in zip(place, item, strict=True)}
    assert found == set(enumerate(order))  # after the whole history nothing is asked
    assert (example.weights == 1).all()


@pytest.mark.parametrize("name", ["recfusion-seq", "sasrec"])
def test_a_rule_of_order_is_learned(name: str) -> None:
    """After item 0 comes 2 and after item 1 comes 3, whatever came before; both are in every history."""
    rng = np.random.default_rng(0)
    sequences = []
    for _ in range(60):
        last = int(rng.integers(2))
        sequences.append([*(4 + rng.permutation(4)[:3]), 1 - last, last, 2 + last])
    rows, extra = rows_of(sequences, 8)
    made = make_model(name, {**SMALL, "max_epochs": 12, "lr": 2e-2}, text=False)
    assert isinstance(made, SequentialRecommender)
    made.fit(rows, rng=0, extra=extra)
    asked, known = rows_of([[4, 5, 6, 1, 0], [4, 5, 6, 0, 1]], 8)
    found, _ = top_k(made.score(asked, extra=known), asked, 1)
    assert found[:, 0].tolist() == [2, 3]
    unordered = made.score(asked)
    assert np.allclose(unordered[0], unordered[1])  # without times both are the same set


def test_only_the_latest_items_of_a_long_history_are_read() -> None:
    rows, extra = rows_of([[0, 1, 2, 3, 4, 5]], 8)
    made = model(length=3, max_epochs=1).fit(rows, rng=0, extra=extra)
    asked, known = rows_of([[7, 6, 3, 4, 5], [0, 1, 3, 4, 5], [0, 1, 4, 3, 5]], 8)
    scores = made.score(asked, extra=known)
    assert np.allclose(scores[0], scores[1], atol=1e-6)
    assert not np.allclose(scores[0], scores[2], atol=1e-6)


def test_scores_do_not_depend_on_longer_histories_beside() -> None:
    rows, extra = rows_of([[0, 1, 2, 3, 4, 5], [6, 7]], 8)
    made = model(max_epochs=1).fit(rows, rng=0, extra=extra)
    together = made.score(rows, extra=extra)
    assert np.allclose(together[1], made.score(rows[[1]], extra=extra.rows(np.array([1])))[0], atol=1e-6)


def test_settings_that_fit_no_net_are_refused() -> None:
    with pytest.raises(InputError, match="heads, got 15"):
        model(width=15)
    with pytest.raises(InputError, match=r"0 < low <= high <= 1.*got 0.9, 0.2"):
        model(low=0.9, high=0.2)


def test_the_loss_is_the_cross_entropy_of_what_is_asked_among_what_is_not_seen() -> None:
    rows, extra = rows_of([[2, 0, 1]], 4)
    made = model(low=1.0, earliest=1.0, reach=0.0, length=2, places=1)
    made.prepare(rows)
    made.net_ = made.make_net(4)
    torch.nn.init.zeros_(made.net_.out.weight)
    torch.nn.init.zeros_(made.net_.out.bias)
    rng = torch.Generator().manual_seed(0)
    found = {round(float(made.loss(made.encoded(rows, extra), made.net_, rng).detach()), 4) for _ in range(20)}
    assert found == {round(float(np.log(2)), 4), 0.0}  # two items are seen, two are not; or all were read
