"""Networks with known dislikes in their loss."""

import math
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor

from conftest import csr, random_csr
from dislikes import MultVAEDislikes, RecFusionDislikes
from recfusion.data.signals import Extra
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.registry import make_model

Kind: TypeAlias = type[MultVAEDislikes] | type[RecFusionDislikes]
TRAIN = random_csr(40, 12, 0.3, 0)


def outputs(model: NeuralRecommender, values: list[list[float]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the network say the same of whoever is asked for."""
    monkeypatch.setattr(type(model), "scores", lambda self, history: Tensor(values))


def test_a_dislike_costs_the_probability_that_the_softmax_has_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MultVAEDislikes(dislike=2.0)
    # Softmax of log 1, log 2, log 5: 1/8, 2/8, 5/8. The first user dislikes the last two items, the other none.
    outputs(model, [[0, math.log(2), math.log(5)], [0, 0, 0]], monkeypatch)
    found = model.dislike_loss(csr([[0], [1]], 3), csr([[1, 2], []], 3))
    assert float(found) == pytest.approx(2.0 * -(math.log(6 / 8) + math.log(3 / 8)) / 2)


def test_a_dislike_costs_the_error_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    gaussian, binary = RecFusionDislikes(dislike=0.5), RecFusionDislikes(dislike=0.5, process="thinning")
    for model, expected in ((gaussian, 0.7**2), (binary, math.log(1 + math.exp(0.7)))):
        model.learn_means(csr([[0], [1]], 3))
        outputs(model, [[0.2, 0.7, -0.1]], monkeypatch)
        assert float(model.dislike_loss(csr([[0]], 3), csr([[1]], 3))) == pytest.approx(0.5 * expected, rel=1e-5)


@pytest.mark.parametrize(("name", "kind"), [("multvae", MultVAEDislikes), ("recfusion", RecFusionDislikes)])
def test_without_dislikes_it_is_the_plain_network(name: str, kind: Kind) -> None:
    small: dict[str, Any] = {"width": 8, "max_epochs": 2}
    plain = make_model(name, small).fit(TRAIN, rng=0)
    none = kind(**small).fit(TRAIN, rng=0)
    off = kind(**small, dislike=0.0).fit(TRAIN, rng=0, extra=Extra(disliked=csr_array(TRAIN[::-1])))
    for other in (none, off):
        np.testing.assert_array_equal(other.score(TRAIN), plain.score(TRAIN))


@pytest.mark.parametrize("kind", [MultVAEDislikes, RecFusionDislikes])
def test_what_users_dislike_sinks_in_the_lists_of_similar_users(kind: Kind) -> None:
    # All like 0 and 1; a half of them each likes 2 and 3, and the first half dislikes 3.
    likes = csr([[0, 1, 2] if user % 2 else [0, 1, 3] for user in range(40)], 5)
    dislikes = csr([[3] if user % 2 else [] for user in range(40)], 5)
    settings: dict[str, Any] = {"width": 8, "max_epochs": 20, "dislike": 5.0, "lr": 0.01}
    model = kind(**settings).fit(likes, rng=0, extra=Extra(disliked=dislikes))
    plain = kind(**settings).fit(likes, rng=0)
    asked = csr([[0, 1, 2]], 5)
    gap = [torch.from_numpy(one.score(asked))[0] for one in (model, plain)]
    assert float(gap[0][3] - gap[0][4]) < float(gap[1][3] - gap[1][4])
