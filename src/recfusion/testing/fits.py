"""What a fit must do: the same every time, nothing to its inputs and to other models, and something with odd data."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from recfusion.core.arrays import Csr
from recfusion.data.split import Fold
from recfusion.models.settings import setting_values
from recfusion.testing.scores import apart, unsound
from recfusion.testing.subject import N_ITEMS, SEED, Subject, copied_fold
from recfusion.training.epoch import Epoch


def returns_itself(s: Subject) -> str | None:
    return None if s.first.returned is s.first.model else f"{s.first.returned!r}"


def settings_stay(s: Subject) -> str | None:
    now = setting_values(s.fitted)
    changed = [f"{name} = {now[name]!r}" for name, value in s.settings.items() if now[name] != value]
    return f"a fitted model with {', '.join(changed)}" if changed else None


def inputs_stay(s: Subject) -> str | None:
    pairs = {
        "training matrix": (s.first.train, s.train),
        "history of validation users": (s.first.valid.history, s.valid.history),
        "held-out matrix of validation users": (s.first.valid.held_out, s.valid.held_out),
        "history to score": (s.first.asked, s.asked),
    }
    changed = [what for what, (now, before) in pairs.items() if not _same(now, before)]
    return f"another {' and another '.join(changed)} after it" if changed else None


def _same(one: Csr, other: Csr) -> bool:
    parts: Iterable[tuple[NDArray[Any], NDArray[Any]]] = (
        (getattr(one, part), getattr(other, part)) for part in ("data", "indices", "indptr")
    )
    return one.shape == other.shape and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in parts)


def same_seed(s: Subject) -> str | None:
    again = s.fit(s.train, s.valid, rng=np.random.default_rng(SEED))
    return apart(again.score(s.asked.copy()), s.scores)


def fits_apart(s: Subject) -> str | None:
    _ = s.on_other
    return apart(s.fitted.score(s.asked.copy()), s.scores)


def refit(s: Subject) -> str | None:
    used = s.fit(s.other, s.few, model=s.fit(s.train, s.valid, rng=SEED + 1))
    return apart(used.score(s.asked.copy()), s.on_other)


def epochs(s: Subject) -> str | None:
    model = s.fresh()
    for epoch in model.epochs(s.train.copy(), copied_fold(s.valid), rng=SEED):
        if not isinstance(epoch, Epoch):
            return f"{epoch!r}"
    differ = apart(model.score(s.asked.copy()), s.scores)
    return f"{differ} from those after fit" if differ else None


def train_alone(s: Subject) -> str | None:
    model = s.fresh()
    model.fit(s.train.copy())
    return unsound(model.score(s.asked.copy()))


def unseen_item(s: Subject) -> str | None:
    def wider(rows: Csr) -> Csr:
        return csr_array((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], N_ITEMS + 1))

    valid = Fold(s.few.users, wider(s.few.history), wider(s.few.held_out))
    has_it = csr_array(np.eye(N_ITEMS + 1, dtype=np.float32)[-2:])
    return _fits(s, wider(s.train), valid, vstack([wider(s.asked), has_it], "csr"))


def user_without_items(s: Subject) -> str | None:
    return _fits(s, vstack([s.train, csr_array((1, N_ITEMS), dtype=np.float32)], "csr"), s.few, s.asked)


def few_users(s: Subject) -> str | None:
    return _fits(s, s.train[:3], s.few, s.asked)


def one_user(s: Subject) -> str | None:
    return _fits(s, s.train[:1], s.few, s.asked)


def one_item(s: Subject) -> str | None:
    return _fits(s, csr_array(np.ones((6, 1), np.float32)), None, csr_array(np.ones((1, 1), np.float32)))


def _fits(s: Subject, train: Csr, valid: Fold | None, asked: Csr) -> str | None:
    return unsound(s.fit(train, valid).score(asked.copy()))
