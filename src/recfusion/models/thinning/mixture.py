"""`thinning`, the default model: a mixture of denoisers with weights chosen on the validation users."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, FloatArray, IntArray, row_numbers
from recfusion.core.errors import InputError, WriteError, choices
from recfusion.core.extras import is_installed
from recfusion.core.rng import RngLike, make_rng
from recfusion.data.interactions import Signal
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.evaluation.scoring import read_by
from recfusion.models.abilities import fit_in_epochs, keeps_histories, use_device
from recfusion.models.base import Recommender, Shape, model_reasons
from recfusion.models.reasons import Reasons, mixed
from recfusion.models.registry import entry
from recfusion.models.self_tuning import (
    LEAST_USERS,
    Judged,
    cannot_choose,
    choose,
    fewer_trials,
    judged_users,
    ndcg_of,
    searches,
    trials_setting,
)
from recfusion.models.sequence.recency import recency_weighted
from recfusion.models.settings import learned, setting, setting_values
from recfusion.models.thinning.features import ThinningFeatures
from recfusion.models.thinning.mixture_weights import Ballot, contributions, find_weights, standardised, weighted_sum
from recfusion.models.thinning.parts import beside, economical, name_part, part_scores, weighs_entries
from recfusion.models.thinning.plan import FEATURES, LARGE, LOCAL, NETWORKS, ORDER, WITHOUT_TORCH, plan
from recfusion.training.epoch import Checkpoint, Epoch

log = logging.getLogger(__name__)

# The weights without validation users. A network counts for more with enough data for the large one.
_USUAL = {"thinning-pairs": 0.4, LOCAL: 0.4, "ials": 0.25, "thinning-deep": 0.6, ORDER: 0.6}
_USUAL_LARGE = _USUAL | {"thinning-deep": 1.6, ORDER: 3.2}
_OTHER = 0.25  # weight of any other model
_LONGEST = 2 * 3600.0  # most seconds of a part's fit
_RECENCY = 0.5  # power of recency without validation users
_POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of recency that are tried
_JUDGED = 1000  # most validation users for choosing weights: the scores of all parts are held at once


@dataclass
class Thinning(Recommender):
    """A history is x_t at its own noise level; the denoisers of the mixture predict the removed items.

    Each part's scores are standardised over a user's unseen items and added with weights chosen on the validation
    users. Parts with weight 0 are dropped; `parts_` and `weights_` are the others. Members may be any models of the
    registry; a model that is named twice is fitted twice, with different seeds and the same weight.

    Each part gets the signals that it reads, and signals add parts (see `plan`). For parts that do not read times, an
    entry of a history with r newer ones has the weight (1 + r)^-p; p is chosen for each part on the validation users,
    without another fit. Without signals nothing of this happens.

    Other parts know nothing about an item that no training user has, and little about a user without history: their
    scores come from the part that reads features alone, which is kept with any weight.
    """

    reads: ClassVar[frozenset[Signal]] = frozenset(get_args(Signal))
    members: str = setting(
        "thinning-pairs,thinning-local,ials,thinning-deep,thinning-deep",
        "the models of the mixture, separated by commas",
    )
    use_signals: bool = setting(True, "use ratings, timestamps and features, if they are given")
    tune_trials: int = trials_setting()
    parts: dict[str, dict[str, Any]] | None = setting(None, "the parts with their settings (chosen by the fit)")
    weights: dict[str, float] | None = setting(None, "the parts' weights (chosen by the fit)")
    recency: dict[str, float] | None = setting(
        None, "the parts' powers of recency, if times are known (chosen by the fit)"
    )
    device: str = field(default="cpu", compare=False, kw_only=True)
    weights_: dict[str, float] = learned()
    recency_: dict[str, float] = learned()
    parts_: dict[str, Recommender] = field(init=False, repr=False, compare=False)
    contributions_: dict[str, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self._names():
            entry(name)

    def fit(self, train: Csr, valid: Fold | None = None, *, rng: RngLike = None, extra: Extra | None = None) -> Self:
        for _ in self.epochs(train, valid, rng=rng, extra=extra):
            pass
        return self

    def epochs(
        self,
        train: Csr,
        valid: Fold | None = None,
        *,
        rng: RngLike = None,
        checkpoint: Checkpoint | None = None,
        extra: Extra | None = None,
    ) -> Iterator[Epoch]:
        extra = extra if self.use_signals else None
        generator, shape = make_rng(rng), Shape.of(train, extra)
        fitted: dict[str, Recommender] = {}
        for name, part in self._with_enough_judges(self._planned(shape), train, valid).items():
            for other in fitted.values():
                part = beside(part, other)
            name_part(part, name)
            use_device(part, self.device)
            kept = None
            if checkpoint is not None:  # one file for each part
                kept = Checkpoint(checkpoint.path.with_name(f"{checkpoint.path.name}.{name}"), checkpoint.run)
            try:
                yield from fit_in_epochs(part, train, valid, read_by(part, extra), rng=generator, checkpoint=kept)
            except InputError as error:  # it does not fit into memory, or it diverged: go on without it
                if isinstance(error, WriteError) or (kept is not None and kept.path.exists()):
                    raise  # about a checkpoint: a full disk, or the file of another run
                log.warning("The part %s is left out: %s", name, error)
                continue
            fitted[name] = part
        if not fitted:
            raise InputError("None of the mixture's parts could be fitted: the messages above say why.")
        judged = None if valid is None else judged_users(valid, _JUDGED)
        self.recency_ = self._powers(fitted, judged, shape) if self.recency is None else self.recency
        ballot: Ballot | None = None
        weights = _given(self.weights, fitted) if self.weights is not None else usual_weights(fitted, shape)
        if self.weights is None and len(fitted) > 1 and valid is not None:
            if judged is not None and len(valid.users) >= LEAST_USERS:
                ballot = Ballot.of(fitted, judged, self.recency_)
                weights = found_weights(ballot, weights)
            else:
                log.warning("%s: the usual weights are used.", cannot_choose(len(valid.users), "weights", "validation"))
        self.weights_ = _shares(weights) | {name: 0.0 for name in fitted if name == FEATURES and not weights[name]}
        self.parts_ = {name: fitted[name] for name in self.weights_}
        self.recency_ = {name: power for name, power in self.recency_.items() if name in self.parts_ and power}
        self.contributions_ = {} if ballot is None else contributions(ballot, self.weights_)
        self.trials_ = sum(part.trials_ for part in fitted.values())

    def chosen(self) -> dict[str, Any]:
        """Return the parts, weights and powers if the fit chose any of them, a setting of a part, or parts to drop."""
        parts = {name: {**setting_values(part), **part.chosen()} for name, part in self.parts_.items()}
        given = {name: setting_values(part) for name, part in _made(self.parts or {}).items()}
        dropped = self.weights is None or self.weights.keys() != self.weights_.keys()
        found = ({"parts": parts} if parts != given else {}) | ({"weights": self.weights_} if dropped else {})
        return found | ({"recency": self.recency_} if (self.recency or {}) != self.recency_ else {})

    def score(self, history: Csr, *, extra: Extra | None = None) -> FloatArray:
        extra = extra if self.use_signals else None
        guide, (known, signals) = self._guide(), self._known(history, extra)
        scores = {
            name: standardised(self._part_scores(name, known, signals), known)
            for name, part in self.parts_.items()
            if part is not guide
        }
        if guide is None:
            return weighted_sum(scores, self.weights_)
        guided = standardised(self._part_scores(FEATURES, history, extra), history)
        mixed = np.zeros_like(guided)
        mixed[:, : guide.n_known] = weighted_sum(scores | {FEATURES: guided[:, : guide.n_known]}, self.weights_)
        mixed[:, guide.is_new] = guided[:, guide.is_new] * _spread(mixed, history, guide.is_new)[:, None]
        lone = guide.placed_by_features(history, extra)
        mixed[lone] = guided[lone]
        return mixed

    def reasons(self, history: Csr, items: IntArray, *, extra: Extra | None = None) -> Reasons:
        """Return the weighted sum of the parts' contributions, in standard deviations of each part's scores."""
        guide, of_parts, extra = self._guide(), [], extra if self.use_signals else None
        new = np.zeros(len(items), bool) if guide is None else guide.is_new[items]
        spread = 0.0 if guide is None else _spread(self.score(history, extra=extra), history, guide.is_new)[0]
        for name, weight in self.weights_.items():
            part = self.parts_[name]
            rows, signals = (history, extra) if part is guide else self._known(history, extra)
            scores = self._part_scores(name, rows, signals)[0]
            unseen = np.isfinite(scores)
            unseen[rows.indices] = False
            unit = float(np.std(scores[unseen], dtype=np.float64)) if unseen.any() else 0.0
            weighted = recency_weighted(rows, signals, self.recency_.get(name, 0.0))
            reasons = model_reasons(part, weighted, items if part is guide else np.where(new, 0, items), signals)
            share = np.where(new, spread if part is guide else 0.0, weight) / max(unit, 1e-12)
            of_parts.append((share.astype(np.float32), reasons))
        return mixed(of_parts)

    def _part_scores(self, name: str, history: Csr, extra: Extra | None) -> FloatArray:
        return part_scores(self.parts_[name], history, extra, self.recency_.get(name, 0.0))

    def _guide(self) -> ThinningFeatures | None:
        """Return the part that knows new items, if there is one."""
        part = self.parts_.get(FEATURES)
        return part if isinstance(part, ThinningFeatures) else None

    def _known(self, history: Csr, extra: Extra | None) -> tuple[Csr, Extra | None]:
        """Return histories and signals without the items that were added after the fit, which only one part knows."""
        guide = self._guide()
        if guide is None or history.shape[1] == guide.n_known:
            return history, extra
        known = np.arange(guide.n_known)
        return history[:, known], None if extra is None else extra.columns(known)

    def state(self) -> dict[str, NDArray[Any]]:
        return {f"{name}.{key}": array for name, part in self.parts_.items() for key, array in part.state().items()}

    def load_state(self, state: Mapping[str, NDArray[Any]], chosen: Mapping[str, Any], n_items: int) -> None:
        full = replace(self, **chosen)
        if not full.parts or not full.weights:
            raise ValueError("its parts or their weights are missing")
        self.weights_ = full.weights if "weights" in chosen else _shares(full.weights)
        self.recency_, self.contributions_ = full.recency or {}, {}
        self.parts_ = _made(full.parts)
        known = len(state.get(f"{FEATURES}.new_", range(n_items)))  # items of the fit, without those added later
        for name, part in self.parts_.items():
            own = {key.removeprefix(f"{name}."): array for key, array in state.items() if key.startswith(f"{name}.")}
            part.load_state(own, {}, n_items if name == FEATURES else known)

    @property
    def keeps_histories(self) -> bool:
        named = [_name(label) for label in vars(self).get("parts_") or self.parts or self._names()]
        return any(_keeps_histories(name) for name in named)

    def without_histories(self) -> Self:
        kept = [name for name in self._names() if not _keeps_histories(name)]
        if self.parts is not None or not kept:
            return self
        return replace(self, members=",".join(kept))

    def planned(self, shape: Shape) -> tuple[str, ...]:
        """Return the names of the models that a fit on data of this size begins with."""
        return tuple(self.parts or plan(self._names(), shape).parts)

    def fit_notes(self) -> list[str]:
        """Return a sentence about each part: its weight, what it adds, and how it weights histories."""
        found = [WITHOUT_TORCH] if {*self._names()} & {*NETWORKS} and not is_installed("torch") else []
        for name, weight in self.weights_.items():
            added, power = self.contributions_.get(name), self.recency_.get(name)
            gain = "" if added is None else f"; it adds {100 * added:+.2f} points of NDCG@100 on the validation users"
            aged = f"; an entry with r newer ones counts (1 + r)^-{power:g}" if power else ""
            found.append(f"{name}: weight {weight:.2f}{gain}{aged}")
        return found

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
            _warn_once(reason)
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

    def _powers(self, parts: Mapping[str, Recommender], judged: Fold | None, shape: Shape) -> dict[str, float]:
        """Return the best power of recency for each part that does not read times; none if times are not known."""
        weighed = {name: part for name, part in parts.items() if shape.timed and weighs_entries(part)}
        if judged is None or len(judged.users) < LEAST_USERS:
            return dict.fromkeys(weighed, _RECENCY)

        def best(part: Recommender) -> float:
            def scored(rows: slice) -> Iterator[FloatArray]:
                some = judged.take(rows)
                return (part_scores(part, some.history, some.extra, power) for power in _POWERS)

            tried = [
                Judged({"p": power}, values) for power, values in zip(_POWERS, ndcg_of(scored, judged), strict=True)
            ]
            return float(choose(tried, {"p": _RECENCY})["p"])

        return {name: best(part) for name, part in weighed.items()}

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


@cache
def _warn_once(reason: str) -> None:
    log.warning("%s.", reason)


def _keeps_histories(name: str) -> bool:
    return name not in NETWORKS and keeps_histories(entry(name).make())  # networks may lack torch


def _made(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Recommender]:
    # By name only: a stored mixture must not import a file that its parts name.
    return {label: entry(_name(label)).make(settings) for label, settings in parts.items()}


def _spread(scores: FloatArray, history: Csr, new: NDArray[np.bool_]) -> FloatArray:
    """Return the standard deviation of each user's scores of unseen items that are not new, (users,)."""
    counted = np.tile(~new, (len(scores), 1))
    counted[row_numbers(history), history.indices] = False
    return np.asarray(np.std(scores, axis=1, dtype=np.float64, where=counted), np.float32)


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
