"""No setting lets a model compute without end, or take all the memory of a machine."""

from typing import Any

import pytest

from conftest import random_csr
from recfusion.core import memory
from recfusion.core.errors import InputError
from recfusion.models.baselines.bspm import BSPM
from recfusion.models.linear.elsa import ELSA
from recfusion.models.neural.network import NeuralRecommender
from recfusion.models.neural.vae import MultVAE
from recfusion.models.registry import MODELS
from recfusion.models.settings import Kind, hints, settings_of

# More of these than there are users, items, pairs or epochs is as good as all of them.
CAPPED = {"batch_size", "patience", "neighbours", "max_users", "pairs", "window"}
KINDS = {entry.load(): name for name, entry in MODELS.items()}
COUNTS = [(kind, name) for kind in KINDS for name in settings_of(kind) if hints(kind)[name] is int]
ABSURD = 10**22


def is_capped(kind: Kind, name: str) -> bool:
    """Return whether a count stops at what the data have, or at another setting."""
    other = {"noised_steps": "DiffRec", "start": "CODIGEM", "factors": "BSPM"}.get(name) == kind.__name__
    return name in CAPPED or other


@pytest.mark.parametrize(("kind", "name"), COUNTS, ids=[f"{KINDS[kind]} {name}" for kind, name in COUNTS])
def test_an_absurd_count_is_refused_or_as_good_as_all(kind: Kind, name: str) -> None:
    made: dict[str, Any] = {name: ABSURD}
    if settings_of(kind)[name].at_most is not None:
        with pytest.raises(InputError, match=rf"^Expected {name} of \w+ to be at most [\d,]+, got {ABSURD}\.$"):
            kind(**made)
        return
    assert is_capped(kind, name), f"{name} of {kind.__name__} has no bound: would a fit with {ABSURD} end?"
    if name in ("noised_steps", "start"):
        with pytest.raises(InputError, match=name):
            kind(**made)
        return
    free = {"tune_trials": 0} if "tune_trials" in settings_of(kind) else {}
    if issubclass(kind, NeuralRecommender):
        if kind is not ELSA:
            return  # they share the driver
        free = {"max_epochs": 1}
    train = random_csr(20, 8, 0.4, seed=0)
    model = kind(**made, **free).fit(train, rng=0)  # type: ignore[attr-defined]
    assert model.score(train).shape == train.shape


def test_a_network_that_cannot_be_trained_here_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 10**9)
    model = MultVAE(width=20_000, latent=20_000, max_epochs=1)
    with pytest.raises(InputError, match=r"^A network of 1,[\d,]+ weights on 8 items needs about 2\d\.\d GB"):
        model.fit(random_csr(20, 8, 0.4, seed=0), rng=0)


def test_a_bound_itself_is_taken() -> None:
    assert BSPM(blur_steps=1000).blur_steps == 1000
