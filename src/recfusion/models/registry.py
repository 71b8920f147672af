"""MODELS, the one registry: the contract test, the commands, tuning and reports all iterate over it.

An entry is a class, the settings that make a variant of it, and presets. Classes are imported when they are first
used, so that the linear models need no torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recfusion.core.errors import choices
from recfusion.models.base import Recommender, build

TUNED = "tuned"
PRESET = "preset"  # names settings to lay over a model's own


@dataclass(frozen=True)
class Entry:
    """A model: what it is, the class that implements it, and the settings in which it differs from the class.

    A preset is laid over those settings.
    """

    title: str
    load: Callable[[], type[Recommender]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def _random() -> type[Recommender]:
    from recfusion.models.random import Random

    return Random


def _popularity() -> type[Recommender]:
    from recfusion.models.popularity import Popularity

    return Popularity


def _slim() -> type[Recommender]:
    from recfusion.models.slim import SLIM

    return SLIM


def _ease() -> type[Recommender]:
    from recfusion.models.ease import EASE

    return EASE


def _multvae() -> type[Recommender]:
    from recfusion.models.multvae import MultVAE

    return MultVAE


def _thinning_deep() -> type[Recommender]:
    from recfusion.models.thinning.deep import ThinningDeep

    return ThinningDeep


def _thinning() -> type[Recommender]:
    from recfusion.models.thinning.mixture import Thinning

    return Thinning


def _recvae() -> type[Recommender]:
    from recfusion.models.recvae import RecVAE

    return RecVAE


def _bspm() -> type[Recommender]:
    from recfusion.models.bspm import BSPM

    return BSPM


def _ials() -> type[Recommender]:
    from recfusion.models.ials import IALS

    return IALS


def _infinite_ae() -> type[Recommender]:
    from recfusion.models.infinite_ae import InfiniteAE

    return InfiniteAE


def _thinning_linear() -> type[Recommender]:
    from recfusion.models.thinning.linear import ThinningLinear

    return ThinningLinear


def _thinning_kernel() -> type[Recommender]:
    from recfusion.models.thinning.kernel import ThinningKernel

    return ThinningKernel


def _recfusion() -> type[Recommender]:
    from recfusion.models.recfusion import RecFusion

    return RecFusion


def _codigem() -> type[Recommender]:
    from recfusion.models.codigem import CODIGEM

    return CODIGEM


def _diffrec() -> type[Recommender]:
    from recfusion.models.diffrec import DiffRec

    return DiffRec


# The settings that the paper and its published code used for every variant; what a variant adds is in its row.
_PAPER: Mapping[str, Any] = {
    "objective": "published",
    "T": 3,
    "schedule": "quadratic",
    "beta_low": 1e-4,
    "beta_high": 0.1,
    "width": 200,
    "depth": 4,
    "shared": True,
    "lr": 1e-4,
    "weight_decay": 0.0,
    "batch_size": 200,
    "picture_users": 200,
    "max_epochs": 200,
    "patience": 10,
}


def _variant(title: str, settings: Mapping[str, Any]) -> Entry:
    return Entry(title, _recfusion, settings, {"paper": _PAPER})


MODELS: Mapping[str, Entry] = {
    "random": Entry("uniformly random items among those seen in training", _random),
    "popularity": Entry("the most popular items, the same for everybody", _popularity),
    "slim": Entry("sparse non-negative linear item-item model", _slim),
    "ease": Entry("linear item-item model with a closed form", _ease),
    "bspm": Entry("blurring and sharpening of a user's row over the item graph", _bspm),
    "ials": Entry("matrix factorisation of all entries by alternating least squares", _ials),
    "infinite-ae": Entry("autoencoder of infinite width, by its kernel in closed form", _infinite_ae),
    "thinning-linear": Entry("thinning diffusion with a linear denoiser in closed form", _thinning_linear),
    "thinning-pairs": Entry(
        "thinning diffusion with a linear denoiser of items and pairs of items", _thinning_linear, {"pairs": 5000}
    ),
    "thinning-kernel": Entry("thinning diffusion with a denoiser of infinite width, by its kernel", _thinning_kernel),
    "thinning-deep": Entry("thinning diffusion with a deep denoiser", _thinning_deep),
    "thinning": Entry("thinning diffusion with a mixture of denoisers: the default", _thinning),
    "mixture": Entry(
        "the same kind of mixture of models that are no thinning denoisers",
        _thinning,
        {"members": "ease,infinite-ae,recvae"},
    ),
    "multvae": Entry("variational autoencoder with a multinomial likelihood", _multvae),
    "multdae": Entry(
        "denoising autoencoder with a multinomial likelihood",
        _multvae,
        {"form": "dae", "lr": 7e-3, "weight_decay": 3.0, "batch_size": 500, "latent": 340, "dropout": 0.2},
    ),
    "recvae": Entry("variational autoencoder with a composite prior, trained in turns", _recvae),
    "codigem": Entry(
        "Gaussian diffusion with a network for each step",
        _codigem,
        presets={"paper": {"beta_high": 1e-4, "depth": 4, "lr": 1e-4, "weight_decay": 0.0, "patience": 10}},
    ),
    "diffrec": Entry("Gaussian diffusion with little noise, x^0 predicted at every step", _diffrec),
    "recfusion": _variant("Gaussian diffusion with a three-layer network", {"weight_decay": 3.0}),
    "recfusion-t": _variant(
        "RecFusion with a time embedding, f(x + Z_t)",
        {
            "time": "input",
            "T": 12,
            "schedule": "linear",
            "beta_high": 0.01,
            "width": 250,
            "depth": 0,
            "lr": 1.5e-4,
            "weight_decay": 1.5,
            "batch_size": 60,
        },
    ),
    "recfusion-var": _variant(
        "RecFusion that predicts mean and variance",
        {"variance": "predicted", "objective": "elbo", "weight_decay": 3.0},
    ),
    "recfusion-bin": _variant(
        "binomial diffusion: ones are thinned away and predicted back",
        {
            "process": "thinning",
            "schedule": "linear",
            "beta_low": 0.2,
            "beta_high": 1.0,
            "batch_size": 50,
            "weight_decay": 0.5,
        },
    ),
    "recfusion-unet1d": _variant(
        "RecFusion with a U-Net over each user's row", {"net": "unet1d", "max_epochs": 20, "patience": 3}
    ),
    "recfusion-unet2d": _variant(
        "RecFusion with a U-Net over pictures of several users",
        {"net": "unet2d", "max_epochs": 20, "patience": 3},
    ),
}


def entry(name: str) -> Entry:
    """Return the registry's entry of that name."""
    if name not in MODELS:
        raise choices("model", name, MODELS)
    return MODELS[name]


def make_model(name: str, settings: Mapping[str, Any] | None = None, *, text: bool = True) -> Recommender:
    """Return a new model by name, with settings given as values or, with `text`, as text.

    `preset` is no setting of its own: it names settings to lay over the model's own ("paper", where the model has it;
    "tuned", the default, lays over none).
    """
    found = entry(name)
    given = dict(settings or {})
    preset = given.pop(PRESET, TUNED)
    if preset != TUNED and (not isinstance(preset, str) or preset not in found.presets):
        raise choices(f"preset of {name}", preset, [TUNED, *found.presets])
    return build(found.load(), name, {**found.settings, **found.presets.get(preset, {}), **given}, text=text)


def typed_settings(name: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return settings given as text, as values of the types that a model takes; `preset` stays as it is."""
    model = make_model(name, texts)
    return {key: text if key == PRESET else getattr(model, key) for key, text in texts.items()}
