"""RecFusion with columns of users and items: the condition, its dropping, its strength, and what it can know."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor

import recfusion.diffusion as diffusion
from conftest import random_csr
from guided import GuidedRecFusion
from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.data.interactions import Features
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.diffusion import ancestral, elbo

SMALL: dict[str, Any] = {"width": 16, "max_epochs": 1, "weight_decay": 0.0}
GENRES = Features(csr_array(np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32)), ("g: a", "g: b"))


def model(**settings: Any) -> GuidedRecFusion:
    return GuidedRecFusion(**{**SMALL, **settings})


def people(kinds: list[int]) -> Features:
    return Features(csr_array(np.eye(2, dtype=np.float32)[kinds]), ("sex: f", "sex: m"))


def by_kind(n: int) -> tuple[Csr, Features]:
    """Users with one item each, which their kind decides: item 0 or 1 of kind 0, item 2 or 3 of kind 1."""
    rng = np.random.default_rng(0)
    kinds = np.arange(n) % 2
    return csr_array(np.eye(4, dtype=np.float32)[2 * kinds + rng.integers(0, 2, n)]), people(kinds.tolist())


def test_the_net_is_told_the_user_s_columns_and_the_mean_features_of_what_is_left() -> None:
    made = model(guidance=1.0).fit(by_kind(20)[0], extra=Extra(item_features=GENRES, user_features=by_kind(20)[1]))
    told: list[Tensor] = []
    made.net_ = lambda xt, t, c=None: told.append(c) or xt  # type: ignore[assignment,func-returns-value]
    history = csr_array(np.array([[1, 1, 1, 0], [0, 0, 0, 0]], np.float32))
    made.score(history, extra=Extra(user_features=people([1, 0])))
    assert told[0].tolist() == [pytest.approx([0, 1, 2 / 3, 1 / 3]), [1, 0, 0, 0]]
    made.score(history)  # nothing is known of the users
    assert told[1].tolist() == [pytest.approx([0, 0, 2 / 3, 1 / 3]), [0, 0, 0, 0]]


@pytest.mark.parametrize("guidance", [0.0, 1.0, 2.0])
def test_scores_go_from_the_net_without_a_condition_through_the_one_with_it(guidance: float) -> None:
    rows, users = by_kind(20)
    made = model(guidance=guidance).fit(rows, extra=Extra(user_features=users), rng=0)
    x1, t = torch.from_numpy(rows.toarray()), torch.ones(20, dtype=torch.int64)
    with torch.no_grad():
        without, given = made.net_(x1, t), made.net_(x1, t, torch.from_numpy(users.matrix.toarray()))
    expected = without + guidance * (given - without)
    assert not torch.allclose(without, given)
    assert made.score(rows, extra=Extra(user_features=users)) == pytest.approx(expected.numpy(), abs=1e-5)


def test_each_part_is_hidden_in_training_as_often_as_asked() -> None:
    rows, users = by_kind(4000)
    made = model(drop=0.3).fit(rows[:40], extra=Extra(item_features=GENRES, user_features=people([0, 1] * 20)), rng=0)
    told: list[Tensor] = []
    made.net_ = lambda xt, t, c=None: told.append(c) or xt  # type: ignore[assignment,func-returns-value]
    encoded = made.encoded(rows, Extra(user_features=users))
    made.denoiser(encoded, torch.Generator().manual_seed(0))(torch.from_numpy(rows.toarray()), torch.ones(4000))
    hidden = [float((part.sum(1) == 0).float().mean()) for part in (told[0][:, :2], told[0][:, 2:])]
    assert hidden == pytest.approx([0.3, 0.3], abs=0.03)
    both = float((told[0].sum(1) == 0).float().mean())
    assert both == pytest.approx(0.09, abs=0.02)


def test_a_column_decides_the_list_and_the_samples_of_users_without_history() -> None:
    rows, users = by_kind(400)
    made = model(max_epochs=60, lr=3e-3, beta_high=1.0, guidance=1.0).fit(rows, extra=Extra(user_features=users), rng=0)
    nobody = csr_array((2, 4), dtype=np.float32)
    first, second = made.score(nobody, extra=Extra(user_features=people([0, 1])))
    assert min(first[:2]) > max(first[2:])
    assert min(second[2:]) > max(second[:2])
    process = made.make_process(made.means)
    asked = made.encoded(csr_array((600, 4), dtype=np.float32), Extra(user_features=people([0] * 600)))
    drawn = ancestral(process, made.guided(asked), (600, 4), torch.Generator().manual_seed(0)).mean(0)
    assert float(drawn[:2].sum()) > 5 * float(drawn[2:].sum())


def test_the_bound_with_a_condition_that_decides_is_lower() -> None:
    rows, users = by_kind(400)
    made = model(max_epochs=60, lr=3e-3, objective="elbo", guidance=1.0)
    made.fit(rows, extra=Extra(user_features=users), rng=0)
    process, x0 = made.make_process(made.means), torch.from_numpy(rows.toarray())
    encoded = made.encoded(rows, Extra(user_features=users))
    bounds = []
    for denoiser in (made.guided(encoded), made.net_):
        with torch.no_grad():
            bounds.append(float(elbo(process, denoiser, x0, torch.Generator().manual_seed(0)).total.mean()))
    assert bounds[0] < bounds[1] - 0.2


def test_the_strength_is_chosen_on_validation_users_and_given_ones_stay() -> None:
    rows, users = by_kind(40)
    valid = Fold(np.arange(40), csr_array((40, 4), dtype=np.float32), rows, extra=Extra(user_features=users))
    made = model(max_epochs=40, lr=3e-3).fit(rows, valid, extra=Extra(user_features=users), rng=0)
    assert made.chosen()["guidance"] == made.guidance_ > 0
    assert made.settled().guidance == made.guidance_
    assert model(guidance=0.5).fit(rows, valid, extra=Extra(user_features=users), rng=0).guidance_ == 0.5


def test_a_saved_model_keeps_its_features_and_wrong_ones_are_refused() -> None:
    rows, users = by_kind(20)
    made = model().fit(rows, extra=Extra(item_features=GENRES, user_features=users), rng=0)
    again = model()
    again.load_state(made.state(), made.chosen(), 4)
    assert np.array_equal(again.score(rows), made.score(rows))
    with pytest.raises(ValueError, match="do not belong to 5 items"):
        model().load_state(made.state(), made.chosen(), 5)
    wrong = Features(csr_array((20, 3), dtype=np.float32), ("a", "b", "c"))
    with pytest.raises(InputError, match="Expected 2 features of each user, got 3"):
        made.score(rows, extra=Extra(user_features=wrong))


def test_settings_that_cannot_be_guided_are_refused() -> None:
    with pytest.raises(InputError, match="needs net 'mlp', got 'unet1d'"):
        model(net="unet1d")
    with pytest.raises(InputError, match="above 0 and below 1, got 0: guidance needs training"):
        model(drop=0.0)
    assert model(drop=0.0, guidance=1.0).drop == 0


@pytest.mark.parametrize("process", ["paper-kernel", "bit-flips", "drift", "thinning"])
def test_it_runs_on_every_binary_process(process: diffusion.ProcessName) -> None:
    train = random_csr(12, 9, 0.3, 0)
    for objective in ("simple", "elbo", "bce-elbo"):
        assert np.isfinite(model(process=process, objective=objective).fit(train, rng=0).score(train)).all()
