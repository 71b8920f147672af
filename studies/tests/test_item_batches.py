"""Batches of items and of categories: shares by hand, one category in a batch, guidance, and the contract."""

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from conftest import csr, random_csr
from item_batches import CategoryBatches, ItemBatches
from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import Features
from recfusion.data.signals import Extra
from recfusion.diffusion import Denoiser
from recfusion.testing import Subject, checks

SMALL: dict[str, Any] = {"width": 16, "max_epochs": 2}
GENRES = Features(csr_array(np.array([[1, 0], [1, 0], [0, 1], [1, 1]], np.float32)), ("g: a", "g: b"))


def test_scores_are_the_shares_of_an_item_among_the_users_of_the_history_s_items() -> None:
    model = ItemBatches(**SMALL).fit(csr([[0, 1], [0, 1, 2], [0], [2]], 3), rng=0)
    perfect = lambda xt, t: torch.where(xt > 0, 50.0, -50.0)  # noqa: E731
    shares = model.shares(perfect)  # the columns as they are
    assert shares.numpy() == pytest.approx(np.array([[1, 2 / 3, 1 / 3], [1, 1, 1 / 2], [1 / 2, 1 / 2, 1]]), abs=1e-6)
    model.net_ = perfect  # type: ignore[assignment]
    assert model.score(csr([[0, 2], []], 3)).tolist() == [pytest.approx([3 / 4, 7 / 12, 2 / 3]), [0, 0, 0]]


class Watched(ItemBatches):
    """Keeps the rows of its batches."""

    seen: ClassVar[list[Csr]] = []

    def loss(self, rows: Csr, trained: nn.Module, rng: torch.Generator) -> Tensor:
        self.seen.append(rows)
        return super().loss(rows, trained, rng)


def test_an_example_is_a_column() -> None:
    train = random_csr(20, 6, 0.4, 0)
    Watched(**SMALL).fit(train, rng=0)
    columns = np.concatenate([rows.toarray() for rows in Watched.seen])
    assert sorted(map(tuple, columns)) == sorted(map(tuple, np.tile(train.toarray().T, (2, 1))))


class WatchedCategories(CategoryBatches):
    """Keeps the columns and the condition of each batch."""

    seen: ClassVar[list[tuple[Csr, Tensor]]] = []

    def denoiser(self, rows: Csr, rng: torch.Generator) -> Denoiser:
        self.seen.append((rows, self._condition))
        return super().denoiser(rows, rng)


def test_a_batch_has_items_of_one_category_which_is_the_condition() -> None:
    train = csr([[0, 1], [0, 3], [2, 3], [1, 2]], 4)
    WatchedCategories(**SMALL, drop=0.0).fit(train, rng=0, extra=Extra(item_features=GENRES))
    columns = {0: {(1, 1, 0, 0), (1, 0, 0, 1), (0, 1, 1, 0)}, 1: {(0, 0, 1, 1), (0, 1, 1, 0)}}
    assert len(WatchedCategories.seen) == 4  # two categories, two epochs
    for rows, condition in WatchedCategories.seen:
        assert sorted(condition.tolist()) == [0, 1]
        assert {tuple(map(int, row)) for row in rows.toarray()} == columns[int(condition.argmax())]


@pytest.mark.parametrize("guidance", [0.0, 1.0, 2.0])
def test_guidance_goes_from_no_category_through_the_item_s_own(guidance: float) -> None:
    train = random_csr(12, 4, 0.5, 0)
    model = CategoryBatches(**SMALL, guidance=guidance).fit(train, rng=0, extra=Extra(item_features=GENRES))
    own = torch.tensor([[1, 0], [1, 0], [0, 1], [0.5, 0.5]])
    x, t = torch.from_numpy(train.toarray().T.copy()), torch.ones(4, dtype=torch.int64)
    with torch.no_grad():
        without, given = model.net_(x, t), model.net_(x, t, own)
        found = model.columns()(x, t)
    assert not torch.allclose(without, given)
    assert torch.allclose(found, without + guidance * (given - without), atol=1e-6)


def test_they_keep_the_contract_and_refuse_what_has_no_categories() -> None:
    for check in checks():
        check(Subject(ItemBatches(**SMALL)))
    with pytest.raises(InputError, match="need features of the items"):
        CategoryBatches(**SMALL).fit(csr([[0, 1]], 2), rng=0)
