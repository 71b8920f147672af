"""Updates of models without a correction in closed form: iALS, models that are fitted again, and mixtures."""

from copy import copy

import numpy as np
from scipy.sparse import csr_array

from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.evaluation.scoring import read_by
from recfusion.models.abilities import fit_in_epochs, planned_parts, settled
from recfusion.models.base import Recommender, Shape
from recfusion.models.factors.ials import IALS, Fixed, half_step
from recfusion.models.registry import entry
from recfusion.models.thinning.local import ThinningLocal
from recfusion.models.thinning.local_updates import LocalUpdater
from recfusion.models.thinning.mixture import Thinning
from recfusion.models.thinning.parts import economical
from recfusion.models.thinning.signal_updates import SignalsUpdater, has_correction
from recfusion.models.thinning.signals import ThinningSignals
from recfusion.models.updating import Arrays, Change, Kept, Updater, UserRows, updater_of, widened

_PASSES = 2  # of iALS over the changed items


def find(model: object) -> Updater | None:
    """Return the updater of one of these models; None for other models."""
    if isinstance(model, Thinning):
        return MixtureUpdater()
    if isinstance(model, IALS):
        return FactorUpdater()
    if isinstance(model, ThinningSignals) and len(vars(model).get("people_", ())):
        return None  # features of users are not kept
    if isinstance(model, ThinningSignals) and has_correction(model):
        return SignalsUpdater()
    if isinstance(model, ThinningLocal):
        return LocalUpdater()
    return RefitUpdater() if isinstance(model, ThinningSignals) else None


def refitted(model: Recommender, change: Change) -> Recommender:
    """Return a fit with the chosen settings on the rows after a change."""
    fresh = settled(model)
    for _ in fit_in_epochs(fresh, change.rows.matrix, None, read_by(model, change.rows.extra), rng=change.rng):
        pass
    return fresh


class Untested:
    """An update that keeps no arrays and has no certificate."""

    def n_bytes(self, model: Recommender, shape: Shape) -> int:
        return 0

    def keep(self, model: Recommender, rows: UserRows) -> Arrays:
        return {}

    def error(self, model: Recommender, kept: Kept, rows: UserRows, probes: Csr) -> None:
        return None


class RefitUpdater(Untested):
    """Fits a closed form again with its chosen settings: no search, and no data but the kept rows."""

    def update(self, model: Recommender, kept: Kept, change: Change) -> tuple[Recommender, Arrays]:
        return refitted(model, change), {}

    def describe(self, model: Recommender, change: Change) -> tuple[bool, tuple[str, ...]]:
        return True, ("fitted again with the chosen settings, not tested",)


class FactorUpdater(Untested):
    """Updates iALS: all users are folded in, then the changed items, a few times. Forgetting fits it again."""

    def update(self, model: Recommender, kept: Kept, change: Change) -> tuple[Recommender, Arrays]:
        assert isinstance(model, IALS)
        if change.forgets:
            return refitted(model, change), {}
        found, rows = copy(model), change.rows.matrix
        found.items_ = widened(model.items_, change.n_items, model.items_.shape[1]).copy()
        by_item = csr_array(rows.T.tocsr()[change.items])
        for _ in range(_PASSES):
            users = found.fold_in(rows)
            penalties = found.penalty_[0] * (np.diff(by_item.indptr) + found.alpha0_ * rows.shape[0]) ** found.nu_
            fresh = found.items_.copy()  # a new array: the model caches products with the old one
            fresh[change.items] = half_step(by_item, Fixed(users, found.alpha0_), penalties.astype(np.float32))
            found.items_ = fresh
        return found, {}

    def describe(self, model: Recommender, change: Change) -> tuple[bool, tuple[str, ...]]:
        if change.forgets:
            return True, ("fitted again with the chosen settings, since its update is approximate; not tested",)
        return False, (f"updated approximately, not tested: {_PASSES} passes over the changed items",)


class MixtureUpdater:
    """Updates the parts of a mixture; its weights stay. Networks are kept, dropped or trained again."""

    def n_bytes(self, model: Recommender, shape: Shape) -> int:
        assert isinstance(model, Thinning)
        fitted = vars(model).get("parts_")
        names = planned_parts(model, shape)
        parts = list(fitted.values()) if fitted else [economical(entry(name).make(), shape) for name in names]
        known = [(updater_of(part), part) for part in parts]
        return sum(updater.n_bytes(part, shape) for updater, part in known if updater is not None)

    def keep(self, model: Recommender, rows: UserRows) -> Arrays:
        assert isinstance(model, Thinning)
        found: Arrays = {}
        for name, part in model.parts_.items():
            updater = updater_of(part)
            own = {} if updater is None else updater.keep(part, UserRows(rows.matrix, read_by(part, rows.extra)))
            found |= {f"{name}/{key}": array for key, array in own.items()}
        return found

    def update(self, model: Recommender, kept: Kept, change: Change) -> tuple[Recommender, Arrays]:
        assert isinstance(model, Thinning)
        found, arrays, parts = copy(model), Arrays(), dict[str, Recommender]()
        for name, part in model.parts_.items():
            updater = updater_of(part)
            if updater is not None:
                parts[name], own = updater.update(part, _own(kept, name), change)
                arrays |= {f"{name}/{key}": array for key, array in own.items()}
            elif change.others == "retrain":
                parts[name] = refitted(part, change)
            elif change.others == "keep":
                parts[name] = part
        total = sum(model.weights_[name] for name in parts)
        if not total:
            raise InputError(
                "All parts of the mixture with a weight would be dropped: choose --others retrain.", "others"
            )
        found.parts_ = parts
        found.weights_ = {name: round(model.weights_[name] / total, 4) for name in parts}
        found.recency_, found.ratings_ = (
            {name: power for name, power in powers.items() if name in parts}
            for powers in (model.recency_, model.ratings_)
        )
        found.contributions_, found.signal_gains_ = {}, {}
        return found, arrays

    def error(self, model: Recommender, kept: Kept, rows: UserRows, probes: Csr) -> float | None:
        """Return the largest error of the parts that are tested; NaN if one of them has NaN."""
        assert isinstance(model, Thinning)
        known = [(updater_of(part), part, _own(kept, name)) for name, part in model.parts_.items()]
        found = [updater.error(part, own, rows, probes) for updater, part, own in known if updater is not None]
        tested = [error for error in found if error is not None]
        return float(np.max(tested)) if tested else None

    def describe(self, model: Recommender, change: Change) -> tuple[bool, tuple[str, ...]]:
        assert isinstance(model, Thinning)
        exact, notes = True, []
        done = {
            "keep": "kept as it was trained",
            "drop": "dropped, since it cannot be updated",
            "retrain": "trained again",
        }
        for name, part in model.parts_.items():
            updater = updater_of(part)
            own, told = (
                (change.others != "keep", (done[change.others],)) if updater is None else updater.describe(part, change)
            )
            exact = exact and own
            notes += [f"{name}: {sentence}" for sentence in told]
        return exact, tuple(notes)


def fixed_parts(model: object) -> tuple[str, ...]:
    """Return the parts of a mixture that cannot be updated."""
    parts = model.parts_ if isinstance(model, Thinning) else {}
    return tuple(name for name, part in parts.items() if updater_of(part) is None)


def _own(kept: Kept, name: str) -> Arrays:
    return {key.removeprefix(f"{name}/"): array for key, array in kept.items() if key.startswith(f"{name}/")}
