"""`thinning`, the default model: a mixture of denoisers with weights chosen on the validation users."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, FloatArray, IntArray
from recfusion.core.errors import InputError, WriteError, choices
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.split import Fold
from recfusion.models.abilities import fit_in_epochs, keeps_histories, use_device
from recfusion.models.base import Recommender, Shape
from recfusion.models.reasons import Reasons, mixed
from recfusion.models.registry import entry
from recfusion.models.self_tuning import (
    LEAST_USERS,
    cannot_choose,
    fewer_trials,
    judged_users,
    searches,
    trials_setting,
)
from recfusion.models.settings import learned, setting, setting_values
from recfusion.models.thinning.mixture_weights import Ballot, find_weights, standardised, weighted_sum
from recfusion.models.thinning.parts import beside, economical, name_part
from recfusion.models.thinning.plan import LARGE, LOCAL, plan
from recfusion.training.epoch import Checkpoint, Epoch

log = logging.getLogger(__name__)

# The weights without validation users. A network counts for more with enough data for the large one.
_USUAL = {"thinning-pairs": 0.4, LOCAL: 0.4, "ials": 0.25, "thinning-deep": 0.6}
_USUAL_LARGE = _USUAL | {"thinning-deep": 1.6}
_OTHER = 0.25  # weight of any other model
_LONGEST = 2 * 3600.0  # most seconds of a part's fit
_JUDGED = 1000  # most validation users for choosing weights: the scores of all parts are held at once


@dataclass
class Thinning(Recommender):
    """A history is x_t at its own noise level; the denoisers of the mixture predict the removed items.

    Each part's scores are standardised over a user's unseen items and added with weights chosen on the validation
    users. Parts with weight 0 are dropped; `parts_` and `weights_` are the others. Members may be any models of the
    registry; a model that is named twice is fitted twice, with different seeds and the same weight.
    """

    members: str = setting(
        "thinning-pairs,thinning-local,ials,thinning-deep,thinning-deep",
        "the models of the mixture, separated by commas",
    )
    tune_trials: int = trials_setting()
    parts: dict[str, dict[str, Any]] | None = setting(None, "the parts with their settings (chosen by the fit)")
    weights: dict[str, float] | None = setting(None, "the parts' weights (chosen by the fit)")
    device: str = field(default="cpu", compare=False, kw_only=True)
    weights_: dict[str, float] = learned()
    parts_: dict[str, Recommender] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self._names():
            entry(name)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None) -> Self:
        for _ in self.epochs(train, valid, rng=rng):
            pass
        return self

    def epochs(
        self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, checkpoint: Checkpoint | None = None
    ) -> Iterator[Epoch]:
        generator = make_rng(rng)
        fitted: dict[str, Recommender] = {}
        for name, part in self._with_enough_judges(self._planned(Shape.of(train)), train, valid).items():
            for other in fitted.values():
                part = beside(part, other)
            name_part(part, name)
            use_device(part, self.device)
            kept = None
            if checkpoint is not None:  # one file for each part
                kept = Checkpoint(checkpoint.path.with_name(f"{checkpoint.path.name}.{name}"), checkpoint.run)
            try:
                yield from fit_in_epochs(part, train, valid, rng=generator, checkpoint=kept)
            except InputError as error:  # it does not fit into memory, or it diverged: go on without it
                if isinstance(error, WriteError) or (kept is not None and kept.path.exists()):
                    raise  # about a checkpoint: a full disk, or the file of another run
                log.warning("The part %s is left out: %s", name, error)
                continue
            fitted[name] = part
        if not fitted:
            raise InputError("None of the mixture's parts could be fitted: the messages above say why.")
        weights = _given(self.weights, fitted) if self.weights is not None else usual_weights(fitted, Shape.of(train))
        if self.weights is None and len(fitted) > 1 and valid is not None:
            if len(valid.users) >= LEAST_USERS:
                weights = found_weights(Ballot.of(fitted, judged_users(valid, _JUDGED)), weights)
            else:
                log.warning("%s: the usual weights are used.", cannot_choose(len(valid.users), "weights", "validation"))
        self.weights_ = _shares(weights)
        self.parts_ = {name: fitted[name] for name in self.weights_}
        self.trials_ = sum(part.trials_ for part in fitted.values())

    def chosen(self) -> dict[str, Any]:
        """Return the parts and weights if the fit chose any of them, a setting of a part, or parts to drop."""
        parts = {name: {**setting_values(part), **part.chosen()} for name, part in self.parts_.items()}
        given = {name: setting_values(part) for name, part in _made(self.parts or {}).items()}
        dropped = self.weights is None or self.weights.keys() != self.weights_.keys()
        return ({"parts": parts} if parts != given else {}) | ({"weights": self.weights_} if dropped else {})

    def score(self, history: Csr) -> FloatArray:
        scores = {name: standardised(self.parts_[name].score(history), history) for name in self.weights_}
        return weighted_sum(scores, self.weights_)

    def reasons(self, history: Csr, items: IntArray) -> Reasons:
        """Return the weighted sum of the parts' contributions, in standard deviations of each part's scores."""
        of_parts = []
        for name, weight in self.weights_.items():
            part = self.parts_[name]
            scores = part.score(history)[0]
            unseen = np.isfinite(scores)
            unseen[history.indices] = False
            unit = float(np.std(scores[unseen], dtype=np.float64)) if unseen.any() else 0.0
            of_parts.append((weight / max(unit, 1e-12), part.reasons(history, items)))
        return mixed(of_parts)

    def state(self) -> dict[str, NDArray[Any]]:
        return {f"{name}.{key}": array for name, part in self.parts_.items() for key, array in part.state().items()}

    def load_state(self, state: Mapping[str, NDArray[Any]], chosen: Mapping[str, Any], n_items: int) -> None:
        full = replace(self, **chosen)
        if not full.parts or not full.weights:
            raise ValueError("its parts or their weights are missing")
        self.weights_ = full.weights if "weights" in chosen else _shares(full.weights)
        self.parts_ = _made(full.parts)
        for name, part in self.parts_.items():
            own = {key.removeprefix(f"{name}."): array for key, array in state.items() if key.startswith(f"{name}.")}
            part.load_state(own, {}, n_items)

    @property
    def keeps_histories(self) -> bool:
        named = [_name(label) for label in vars(self).get("parts_") or self.parts or self._names()]
        return any(keeps_histories(entry(name).make()) for name in named)

    def without_histories(self) -> Self:
        kept = [name for name in self._names() if not keeps_histories(entry(name).make())]
        if self.parts is not None or not kept:
            return self
        return replace(self, members=",".join(kept))

    def use_device(self, device: str) -> None:
        self.device = device

    @property
    def n_parameters(self) -> int:
        return sum(part.n_parameters for part in self.parts_.values())

    def fit_bytes(self, shape: Shape) -> int | None:
        """Return the bytes of the largest part: parts are fitted one after another."""
        known = [part.forecast(shape).bytes for part in self._planned(shape).values()]
        return max((size for size in known if size is not None), default=None)

    def _planned(self, shape: Shape) -> dict[str, Recommender]:
        """Return the parts to fit; warn about parts that are left out because they would take hours."""
        if self.parts is not None:
            return _made(self.parts)
        planned = plan(self._names(), shape)
        for reason in planned.reasons:
            log.warning("With %d items, %s.", shape.items, reason)
        parts: dict[str, Recommender] = {}
        too_long: set[str] = set()
        for name in planned.parts:
            label = name if name not in parts else f"{name}#{sum(_name(other) == name for other in parts) + 1}"
            if self.weights is not None and label != name and label not in self.weights:
                continue  # a second one without a given weight
            part = entry(name).make()
            if (part.forecast(shape).seconds or 0.0) <= _LONGEST:
                parts[label] = fewer_trials(economical(part, shape), self.tune_trials)
            elif name not in too_long:
                too_long.add(name)
                message = "The mixture leaves out %s: it would take hours on %d users and %d items."
                log.warning(message, name, shape.users, shape.items)
        log.info("The mixture's plan: %s.", ", ".join(parts))
        return parts

    def _with_enough_judges(
        self, parts: dict[str, Recommender], train: Csr, valid: Fold | None
    ) -> dict[str, Recommender]:
        """Return the parts, without searches if there are too few users; it warns once, not for each part."""
        judges = int(np.count_nonzero(np.diff(train.indptr) >= 2)) + (0 if valid is None else len(valid.users))
        if judges >= LEAST_USERS or not any(searches(part) for part in parts.values()):
            return parts
        log.warning("%s: the defaults are used.", cannot_choose(judges, "the settings of the mixture's parts"))
        return {name: fewer_trials(part, 0) for name, part in parts.items()}

    def _names(self) -> list[str]:
        return [name.strip() for name in self.members.split(",")]


def _name(label: str) -> str:
    """Return the model name of a part: `thinning-deep#2` is a second `thinning-deep`."""
    return label.partition("#")[0]


def _made(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Recommender]:
    # By name only: a stored mixture must not import a file that its parts name.
    return {label: entry(_name(label)).make(settings) for label, settings in parts.items()}


def _shares(weights: Mapping[str, float]) -> dict[str, float]:
    """Return the shares of all parts with a weight above 0, rounded."""
    total = sum(weights.values())
    shares = {name: round(weight / total, 4) for name, weight in weights.items()}
    return {name: share for name, share in shares.items() if share > 0}


def usual_weights(parts: Iterable[str], shape: Shape) -> dict[str, float]:
    """Return the default weights, which chosen weights are pulled towards."""
    labels = list(parts)
    names = [_name(label) for label in labels]
    usual = dict(_USUAL_LARGE if shape.interactions >= LARGE else _USUAL)
    if "thinning-pairs" in names:
        usual.pop(LOCAL)  # it has this weight only if it replaces that one
    return {label: usual.get(name, _OTHER) / names.count(name) for label, name in zip(labels, names, strict=True)}


def found_weights(ballot: Ballot, usual: Mapping[str, float]) -> dict[str, float]:
    """Return the weights that are best for the users of a ballot; parts of the same model get equal weights."""
    names = [_name(label) for label in usual]
    together: dict[str, float] = dict.fromkeys(names, 0.0)
    for name, weight in zip(names, usual.values(), strict=True):
        together[name] += weight
    found = find_weights(ballot.joined(names), together)
    return {label: found[name] / names.count(name) for label, name in zip(usual, names, strict=True)}


def _given(weights: Mapping[str, float], parts: Mapping[str, Recommender]) -> dict[str, float]:
    for name in weights:
        if name not in parts:
            raise choices("part in weights", name, parts, "weights")
    given = {name: float(weights.get(name, 0.0)) for name in parts}
    if min(given.values()) < 0 or sum(given.values()) <= 0:
        raise InputError(
            f"Expected weights of at least 0 for {', '.join(given)}, not all of them 0, got {weights}.", "weights"
        )
    return given
