"""`thinning`, the default model: a mixture of denoisers with weights chosen on the validation users."""

import logging
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, Self, get_args

import numpy as np
from numpy.typing import NDArray

from recfusion.core.arrays import Csr, FloatArray, IntArray, row_numbers
from recfusion.core.errors import InputError, WriteError
from recfusion.core.extras import is_installed
from recfusion.core.rng import RngLike, make_rng
from recfusion.core.steps import log as steps
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
    cannot_choose,
    fewer_trials,
    judged_users,
    ndcg_of,
    searches,
    trials_setting,
)
from recfusion.models.sequence.recency import UNWEIGHTED, Powers, weighted_entries
from recfusion.models.settings import learned, setting, setting_values
from recfusion.models.thinning.mixture_choice import (
    N_POWERS,
    choose_together,
    contributions,
    entry_note,
    given_weights,
    model_name,
    rounded_shares,
    tried_powers,
    usual_weights,
)
from recfusion.models.thinning.mixture_weights import Ballot, standardised, variant, weighted_sum
from recfusion.models.thinning.new_items import place_new_items, spread
from recfusion.models.thinning.parts import beside, continued, economical, name_part, part_scores, weighs_entries
from recfusion.models.thinning.plan import DISLIKES, FEATURES, NETWORKS, ORDER, WITHOUT_TORCH, plan
from recfusion.models.thinning.signals import ThinningSignals
from recfusion.training.epoch import Checkpoint, Epoch

log = logging.getLogger(__name__)

_LONGEST, _LONGEST_NETWORK = 2 * 3600.0, 600.0  # most seconds of a part's fit
_SECONDS_PER_SCORE = 2e-7  # of a part, with a share of the search for weights (measured)
# Signals by the names of their notes, and the part that each of them adds to a mixture.
_SIGNALS: Mapping[str, frozenset[Signal]] = {
    "Ratings": frozenset({"grades"}),
    "Timestamps": frozenset({"times"}),
    "Features": frozenset({"item_features", "user_features"}),
}
_ADDED = {"Ratings": DISLIKES, "Timestamps": ORDER, "Features": FEATURES}
_JUDGED = 1000  # most validation users for choosing weights: the scores of all parts are held at once


@dataclass
class Thinning(Recommender):
    """A history is x_t at its own noise level; the denoisers of the mixture predict the removed items.

    Each part's scores are standardised over a user's unseen items and added with weights chosen on the validation
    users. Parts with weight 0 are dropped; `parts_` and `weights_` are the others. Members may be any models of the
    registry; a model that is named twice is fitted twice, with different seeds and the same weight.

    Each part gets the signals that it reads, and signals add parts (see `plan`). For parts that do not read times, an
    entry of a history with r newer ones and the rating g has the weight (1 + r)^-p g^q; p and q are chosen for each
    part together with its weight, on the validation users, without another fit. A part that adds nothing there is
    dropped. Without signals nothing of this happens.

    Other parts know nothing about an item that no training user has, and little about a user without history or with
    such items only: these scores come from the part that reads features alone, which is kept with any weight. A new
    item takes the place among the other items that it has there.
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
    recency: dict[str, float] | None = setting(None, "the parts' powers of recency (p), chosen by the fit")
    ratings: dict[str, float] | None = setting(None, "the parts' powers of ratings (q), chosen by the fit")
    device: str = field(default="cpu", compare=False, kw_only=True)
    # The parts of an earlier fit that the networks continue; it is not a setting.
    start: Mapping[str, Recommender] | None = field(default=None, compare=False, kw_only=True, repr=False)
    weights_: dict[str, float] = learned()
    recency_: dict[str, float] = learned()
    ratings_: dict[str, float] = learned()
    parts_: dict[str, Recommender] = field(init=False, repr=False, compare=False)
    contributions_: dict[str, float] = field(init=False, repr=False, compare=False)
    signal_gains_: dict[str, float] = field(init=False, repr=False, compare=False)

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
        planned = self._with_enough_judges(self._planned(shape), train, valid)
        for number, (name, part) in enumerate(planned.items(), 1):
            steps.info("%s, part %d of %d", name, number, len(planned))
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
        steps.info("weights of %d parts", len(fitted))
        self._weigh(fitted, valid, shape, extra)
        self.start = None  # frees the earlier parts
        self.trials_ = sum(part.trials_ for part in fitted.values())

    def _weigh(self, fitted: Mapping[str, Recommender], valid: Fold | None, shape: Shape, extra: Extra | None) -> None:
        """Choose the weights of the parts and of history entries; keep the parts with a weight."""
        tried = tried_powers(fitted, extra, self.recency, self.ratings)
        powers = {name: each[0] for name, each in tried.items()}
        judged, ballot = None if valid is None else judged_users(valid, _JUDGED), None
        weights = usual_weights(fitted, shape) if self.weights is None else given_weights(self.weights, fitted)
        open_powers = any(len(each) > 1 for each in tried.values())
        if valid is not None and (open_powers or (self.weights is None and len(fitted) > 1)):
            if judged is not None and len(valid.users) >= LEAST_USERS:
                ballot = Ballot.of(fitted, judged, tried)
                given = None if self.weights is None else weights
                powers, weights = choose_together(ballot, tried, weights, given, drop=extra is not None)
                ballot = ballot.named({name: variant(name, powers.get(name, UNWEIGHTED)) for name in fitted})
            else:
                log.warning("%s: the usual weights are used.", cannot_choose(len(valid.users), "weights", "validation"))
        self.weights_ = rounded_shares(weights)
        self.weights_ |= {name: 0.0 for name in fitted if name == FEATURES and name not in self.weights_}
        self.parts_ = {name: fitted[name] for name in self.weights_}
        signals = extra or Extra()
        found = {} if signals.times is None else {name: p for name, (p, _) in powers.items()}
        self.recency_ = self._kept(found if self.recency is None else self.recency)
        found = {} if signals.grades is None else {name: q for name, (_, q) in powers.items()}
        self.ratings_ = self._kept(found if self.ratings is None else self.ratings)
        self.contributions_ = {} if ballot is None else contributions(ballot, self.weights_)
        self.signal_gains_ = {} if ballot is None or judged is None else self._gains(judged)

    def chosen(self) -> dict[str, Any]:
        """Return the parts, weights and powers if the fit chose any of them, a setting of a part, or parts to drop."""
        parts = {name: {**setting_values(part), **part.chosen()} for name, part in self.parts_.items()}
        given = {name: setting_values(part) for name, part in _made(self.parts or {}).items()}
        dropped = self.weights is None or self.weights.keys() != self.weights_.keys()
        found = ({"parts": parts} if parts != given else {}) | ({"weights": self.weights_} if dropped else {})
        powers = {"recency": self.recency_, "ratings": self.ratings_}
        return found | {name: own for name, own in powers.items() if (getattr(self, name) or {}) != own}

    def continued(self) -> Self:
        """Return an unfitted mixture with the chosen weights, whose networks start with what they learned."""
        return replace(self, **self.chosen(), start=self.parts_)

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
        if guide.is_new.any():
            place_new_items(mixed, guided, history, guide.is_new)
        trained = ~guide.is_new[history.indices]  # items that the other parts know
        blind = (np.diff(history.indptr) > 0) & (np.bincount(row_numbers(history)[trained], minlength=len(mixed)) == 0)
        blind |= ~mixed[:, : guide.n_known].any(axis=1)  # nor do they know anything about items without neighbours
        blind[guide.placed_by_features(history, extra)] = True
        mixed[blind] = guided[blind]
        return mixed

    def reasons(self, history: Csr, items: IntArray, *, extra: Extra | None = None) -> Reasons:
        """Return the weighted sum of the parts' contributions, in standard deviations of each part's scores."""
        guide, of_parts, extra = self._guide(), [], extra if self.use_signals else None
        new = np.zeros(len(items), bool) if guide is None else guide.is_new[items]
        unit_of_new = 0.0 if guide is None else spread(self.score(history, extra=extra), history, guide.is_new)[0]
        for name, weight in self.weights_.items():
            part = self.parts_[name]
            rows, signals = (history, extra) if part is guide else self._known(history, extra)
            scores = self._part_scores(name, rows, signals)[0]
            unseen = np.isfinite(scores)
            unseen[rows.indices] = False
            unit = float(np.std(scores[unseen], dtype=np.float64)) if unseen.any() else 0.0
            weighted = weighted_entries(rows, signals, self._powers(name))
            reasons = model_reasons(part, weighted, items if part is guide else np.where(new, 0, items), signals)
            share = np.where(new, unit_of_new if part is guide else 0.0, weight) / max(unit, 1e-12)
            of_parts.append((share.astype(np.float32), reasons))
        return mixed(of_parts)

    def _part_scores(self, name: str, history: Csr, extra: Extra | None) -> FloatArray:
        return part_scores(self.parts_[name], history, extra, self._powers(name))

    def _kept(self, powers: Mapping[str, float]) -> dict[str, float]:
        return {name: power for name, power in powers.items() if name in self.parts_}

    def _powers(self, name: str) -> Powers:
        return self.recency_.get(name, 0.0), self.ratings_.get(name, 0.0)

    def _guide(self) -> ThinningSignals | None:
        """Return the part that knows new items, if there is one."""
        part = self.parts_.get(FEATURES)
        return part if isinstance(part, ThinningSignals) else None

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
        self.weights_ = full.weights if "weights" in chosen else rounded_shares(full.weights)
        self.recency_, self.ratings_ = full.recency or {}, full.ratings or {}
        self.contributions_, self.signal_gains_ = {}, {}
        self.parts_ = _made(full.parts)
        self.weights_ = {name: self.weights_.get(name, 0.0) for name in self.parts_}  # features stay with weight 0
        known = len(state.get(f"{FEATURES}.new_", range(n_items)))  # items of the fit, without those added later
        for name, part in self.parts_.items():
            own = {key.removeprefix(f"{name}."): array for key, array in state.items() if key.startswith(f"{name}.")}
            part.load_state(own, {}, n_items if name == FEATURES else known)

    @property
    def keeps_histories(self) -> bool:
        named = [model_name(label) for label in vars(self).get("parts_") or self.parts or self._names()]
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
        """Return a sentence about each part (its weight, what it adds, its entry weights) and about each signal."""
        found = [WITHOUT_TORCH] if {*self._names()} & {*NETWORKS} and not is_installed("torch") else []
        for name, weight in self.weights_.items():
            added = self.contributions_.get(name)
            gain = "" if added is None else f"; it adds {100 * added:+.2f} points of NDCG@100 on the validation users"
            found.append(f"{name}: weight {weight:.2f}{gain}{entry_note(self._powers(name))}")
        return found + [
            f"{signal} add {100 * gain:+.2f} points of NDCG@100 on the validation users: the same mixture without "
            f"them, and without {_ADDED[signal]}, has that much less"
            for signal, gain in self.signal_gains_.items()
        ]

    def use_device(self, device: str) -> None:
        self.device = device

    @property
    def n_parameters(self) -> int:
        return sum(part.n_parameters for part in self.parts_.values())

    def fit_bytes(self, shape: Shape) -> int | None:
        """Return the bytes of the largest part: parts are fitted one after another."""
        known = [part.forecast(shape).bytes for part in self._planned(shape, silent=True).values()]
        return max((size for size in known if size is not None), default=None)

    def seconds(self, shape: Shape) -> float:
        """Return the sum of the parts' forecasts, and the time to score validation users for the weights."""
        parts = self._planned(shape, silent=True).values()
        tried = sum(1 + N_POWERS * (shape.timed and weighs_entries(part)) for part in parts)
        scored = min(shape.users / 10, _JUDGED) * shape.items * tried
        return sum(part.forecast(shape).seconds or 0.0 for part in parts) + scored * _SECONDS_PER_SCORE

    def _planned(self, shape: Shape, *, silent: bool = False) -> dict[str, Recommender]:
        """Return the parts to fit; warn, unless `silent`, about parts that are left out because they take too long."""
        if self.start is not None:
            return {name: continued(part) for name, part in self.start.items()}
        if self.parts is not None:
            return _made(self.parts)
        planned = plan(self._names(), shape)
        for reason in () if silent else planned.reasons:
            _warn_once(reason)
        parts: dict[str, Recommender] = {}
        too_long: set[str] = set()
        for name in planned.parts:
            label = name if name not in parts else f"{name}#{sum(model_name(other) == name for other in parts) + 1}"
            if self.weights is not None and label != name and label not in self.weights:
                continue  # a second one without a given weight
            part = entry(name).make()
            if (part.forecast(shape).seconds or 0.0) <= (_LONGEST_NETWORK if name in NETWORKS else _LONGEST):
                parts[label] = fewer_trials(economical(part, shape), self.tune_trials)
            else:
                too_long.add(name)
        if not silent:
            message = "The mixture leaves out %s: it would take too long on %d users and %d items."
            for name in sorted(too_long):
                log.warning(message, name, shape.users, shape.items)
            log.info("The mixture's plan: %s.", ", ".join(parts))
        return parts

    def _gains(self, judged: Fold) -> dict[str, float]:
        """Return what each signal adds to the NDCG@100 of these users: what the mixture loses without it."""
        there = {} if judged.extra is None else {name: its for name, its in _SIGNALS.items() if judged.extra.only(its)}
        whole, gains = _ndcg(self, judged) if there else 0.0, {}
        for name, its in there.items():
            model = copy(self)
            model.parts_ = {label: part for label, part in self.parts_.items() if model_name(label) != _ADDED[name]}
            assert judged.extra is not None
            known = replace(judged, extra=judged.extra.only(self.reads - its))
            if any(self.weights_[label] for label in model.parts_):
                gains[name] = whole - _ndcg(model, known)
        return gains

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


@cache
def _warn_once(reason: str) -> None:
    log.warning("%s.", reason)


def _keeps_histories(name: str) -> bool:
    return name not in NETWORKS and keeps_histories(entry(name).make())  # networks may lack torch


def _made(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Recommender]:
    # By name only: a stored mixture must not import a file that its parts name.
    return {label: entry(model_name(label)).make(settings) for label, settings in parts.items()}


def _ndcg(model: Thinning, fold: Fold) -> float:
    def scored(rows: slice) -> list[FloatArray]:
        some = fold.take(rows)
        return [model.score(some.history, extra=some.extra)]

    return float(ndcg_of(scored, fold).mean())
