"""The deep denoiser of order: where it cuts histories, what it shows and asks for, and its loss by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from conftest import csr, random_csr
from recfusion.core.arrays import Csr, row_numbers
from recfusion.data.signals import Extra, valued
from recfusion.data.split import Fold
from recfusion.models.sequence.recency import in_order
from recfusion.models.thinning.order import ThinningOrder, draw_example
from recfusion.nets.sparse import NEVER

SMALL: dict[str, Any] = {"width": 8, "latent": 4, "layers": 2, "directions": 0}
POWERS = (0.25, 1.0, 2.0)


def made(n_items: int, **settings: Any) -> ThinningOrder:
    """Return a model with fresh weights."""
    model = ThinningOrder(**SMALL | settings)
    model.prepare(csr([[item] for item in range(n_items)], n_items))
    torch.manual_seed(0)
    model.net_ = model.make_net(n_items)
    return model


def ordered(rows: list[list[int]], n_items: int) -> Csr:
    """Return histories whose items are listed from the oldest to the newest."""
    history = csr([sorted(row) for row in rows], n_items)
    times = [row.index(item) for row in rows for item in sorted(row)]
    return in_order(history, Extra(times=valued(history, np.array(times, np.int64))))


def entries(matrix: Csr) -> list[dict[int, float]]:
    return [dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)) for row in matrix]


@pytest.mark.parametrize("seed", range(20))
def test_all_entries_after_a_place_are_targets_and_only_older_ones_are_shown(seed: int) -> None:
    rows = [[4, 2, 0, 3, 1], [1, 3], [2]]
    model = made(5, low=0.5, high=0.9, earliest=0.0, reach=2.0)
    found = draw_example(ordered(rows, 5), model, np.random.default_rng(seed))
    assert found.shown.shape == found.targets.shape == (2, 5)  # a single item cannot be cut
    for number, (row, shown, targets) in enumerate(
        zip(rows, entries(found.shown), entries(found.targets), strict=False)
    ):
        place = len(row) - len(targets)
        assert 1 <= place < len(row)
        assert list(targets) == row[place:]
        assert list(targets.values()) == pytest.approx([np.exp(-d / 2) for d in range(len(targets))])
        survivors = [item for item in row[:place] if item in shown]
        assert {*shown} <= {*row[:place]}
        assert [shown[item] for item in survivors[::-1]] == list(range(1, len(survivors) + 1))  # 1 + newer survivors
        assert found.past[1][found.past[0] == number].tolist() == row[:place]


def test_places_survivors_and_ties_are_drawn() -> None:
    model = made(5, low=0.5, high=0.5, earliest=0.0)
    same = csr_array((np.zeros(5, np.float32), np.arange(5), [0, 5]), shape=(1, 5))  # all at one time
    rng = np.random.default_rng(0)
    found = [draw_example(same, model, rng) for _ in range(400)]
    asked = np.mean([len(one.targets.indices) for one in found])
    shown, past = (
        sum(len(part) for part in parts)
        for parts in ([one.shown.indices for one in found], [one.past[1] for one in found])
    )
    assert asked == pytest.approx(2.5, abs=0.2)  # 1 to 4, each as likely
    assert shown / past == pytest.approx(0.5, abs=0.05)
    firsts = np.bincount([one.past[1][0] for one in found], minlength=5)
    assert firsts.min() > 50  # each item is the oldest in turn


def test_the_loss_is_the_weighted_cross_entropy_of_the_targets_over_items_that_are_not_past() -> None:
    model = made(6, b=0.5)
    rows = ordered([[0, 1, 2, 3], [5, 4, 3], [2, 0]], 6)
    found = model.loss(rows, model.net_, torch.Generator().manual_seed(3))
    draws = np.random.default_rng(int(torch.randint(2**62, (1,), generator=torch.Generator().manual_seed(3))))
    example = draw_example(rows, model, draws)
    logits = dense_logits(model, example.shown)
    logits[example.past] = NEVER
    likely = torch.log_softmax(logits, 1)
    wanted = torch.from_numpy(example.targets.toarray())
    costs, sums = -(likely * wanted).sum(1), wanted.sum(1)
    weights = sums**-0.5
    assert found.item() == pytest.approx(
        float((weights * costs).sum() / (weights * sums).sum() * sums.mean()), rel=1e-5
    )


def dense_logits(model: ThinningOrder, shown: Csr) -> torch.Tensor:
    """Return the logits by dense bags: one block of columns for each power, every block of length 1."""
    newer = shown.toarray().astype(np.float64)
    blocks = []
    for power in POWERS:
        bag = np.where(newer > 0, np.maximum(newer, 1) ** -power, 0) * model.item_weights_
        blocks.append(bag / np.maximum(np.linalg.norm(bag, axis=1, keepdims=True), 1e-12))
    inputs = csr_array(np.concatenate(blocks, axis=1).astype(np.float32))
    from recfusion.nets.sparse import SparseRows

    out: torch.Tensor = model.net_(SparseRows.of(inputs)).detach()
    return out


def test_scores_read_the_order_and_equal_times_count_alike() -> None:
    history = csr([[0, 1, 2]], 5)
    model = made(5)

    def scored(times: list[int]) -> np.ndarray[Any, Any]:
        return model.score(history, extra=Extra(times=valued(history, np.array(times, np.int64))))[0]

    assert scored([1, 2, 3]) == pytest.approx(scored([10, 20, 300]))  # only the order counts
    assert np.abs(scored([1, 2, 3]) - scored([3, 2, 1])).max() > 1e-4
    newer = csr_array(np.array([[1, 1, 1, 0, 0]], np.float32))
    assert scored([7, 7, 7]) == pytest.approx(dense_logits(model, newer)[0].numpy(), abs=1e-5)
    assert model.score(history)[0] == pytest.approx(scored([7, 7, 7]))


def test_it_learns_which_item_follows() -> None:
    """Each item is followed by the next one: the newest item says what comes, whatever came before."""
    rng = np.random.default_rng(0)
    starts = rng.integers(0, 12, 300)
    rows = ordered([[(start + step) % 12 for step in range(5)] for start in starts], 12)
    times = valued(rows, (rows.data + 10).astype(np.int64))
    history = valued(rows, np.ones(rows.nnz, np.float32))
    model = ThinningOrder(width=32, latent=16, layers=2, max_epochs=40, batch_size=30, directions=0, weight_decay=0.01)
    model.fit(history, rng=0, extra=Extra(times=times))
    scores = model.score(history, extra=Extra(times=times))
    scores[row_numbers(history), history.indices] = -np.inf
    assert np.mean(scores.argmax(1) == (starts + 5) % 12) > 0.95


def test_without_times_it_fits_and_scores_too() -> None:
    train = random_csr(30, 12, 0.3, 0)
    valid = Fold(np.arange(5), train[:5], train[5:10])
    model = ThinningOrder(**SMALL | {"max_epochs": 2}).fit(train, valid, rng=0)
    assert np.isfinite(model.score(train)).all()
