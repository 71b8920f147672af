"""Checks of fits, also on odd data, and of the scores after them."""

import sys
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from threading import Barrier
from typing import get_args

import numpy as np
from scipy.sparse import csr_array, vstack

from recfusion.core.arrays import Csr, FloatArray
from recfusion.data.interactions import Features, Signal
from recfusion.data.signals import Extra
from recfusion.data.split import Fold
from recfusion.evaluation.scoring import read_by
from recfusion.evaluation.scoring import scores as model_scores
from recfusion.evaluation.topk import top_k
from recfusion.models.abilities import find_lists, finds_lists, fit_in_epochs, signals_read
from recfusion.models.base import Recommender
from recfusion.models.settings import setting_values
from recfusion.testing.sample_data import N_ITEMS, SEED, Subject, signals_of
from recfusion.training.epoch import Epoch

TOLERANCE = 1e-5  # of the largest score: float32 sums differ between batches of different sizes
_THREADS, _TIMES = 4, 8


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
    return f"a changed {' and a changed '.join(changed)}" if changed else None


def _same(one: Csr, other: Csr) -> bool:
    parts = ((getattr(one, part), getattr(other, part)) for part in ("data", "indices", "indptr"))
    return one.shape == other.shape and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in parts)


def same_seed(s: Subject) -> str | None:
    again = s.fit(s.train, s.valid, rng=np.random.default_rng(SEED))
    return apart(again.score(s.asked.copy()), s.scores)


def fits_apart(s: Subject) -> str | None:
    _ = s.on_other
    return apart(s.score(s.asked), s.scores)


def refit(s: Subject) -> str | None:
    used = s.fit(s.other, s.few, model=s.fit(s.train, s.valid, rng=SEED + 1))
    return apart(used.score(s.asked.copy()), s.on_other)


def epochs(s: Subject) -> str | None:
    model = s.fresh()
    for epoch in fit_in_epochs(model, s.train.copy(), deepcopy(s.valid), rng=SEED):
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
    return fits(s, wider(s.train), valid, vstack([wider(s.asked), has_it], "csr"))


def fits(s: Subject, train: Csr, valid: Fold | None, asked: Csr) -> str | None:
    """Return what is wrong with the scores of `asked` after a fit on this data, or None."""
    return unsound(s.fit(train, valid).score(asked.copy()))


def shape(s: Subject) -> str | None:
    for rows in (s.asked, s.asked[[0]], s.asked[:0]):
        scores = s.score(rows)
        if not isinstance(scores, np.ndarray):
            return f"{type(scores).__name__}"
        if scores.shape != rows.shape:
            return f"the shape {scores.shape} for histories of the shape {rows.shape}"
    return None


def float32(s: Subject) -> str | None:
    found = s.score(s.asked).dtype
    return None if found == np.float32 else f"{found}"


def user_alone(s: Subject) -> str | None:
    order = np.arange(len(s.scores))[::-1]
    turned = apart(s.fitted.score(s.asked[order]), s.scores[order], tolerance=TOLERANCE)
    if turned:
        return f"{turned} when users are asked for in another order"
    for row in order:
        alone = apart(np.ravel(s.fitted.score(s.asked[[row]])), s.scores[row], tolerance=TOLERANCE)
        if alone:
            return f"{alone} when a user is asked for alone"
    return None


def found(s: Subject) -> str | None:
    if not finds_lists(s.fitted):
        return None
    k = 3
    items, values = find_lists(s.fitted, s.asked.copy(), k)
    if items.shape != (s.asked.shape[0], k) or values.shape != items.shape:
        return f"lists of the shapes {items.shape} and {values.shape} for {s.asked.shape[0]} users and {k} items each"
    user, place = np.nonzero(items >= 0)
    if s.asked[user, items[user, place]].any():
        return "an item that the user already has"
    return apart(values[user, place], s.scores[user, items[user, place]], tolerance=TOLERANCE)


def overwritten(s: Subject) -> str | None:
    first = s.score(s.asked)
    if not first.flags.writeable:
        return "a read-only array"
    kept = first.copy()
    s.fitted.score(s.asked[::-1])
    if apart(first, kept):
        return "an array that the next call overwrites"
    first[:] = -1
    changed = apart(s.score(s.asked), kept)
    first[:] = kept
    return changed


def threads(s: Subject) -> str | None:
    rows = [s.asked[[number]] for number in range(_THREADS)]
    alone = [s.score(row).copy() for row in rows]
    start = Barrier(_THREADS)

    def ask(number: int) -> list[FloatArray]:
        start.wait()
        return [s.score(rows[number]) for _ in range(_TIMES)]

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # switches threads often
    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            answers = list(pool.map(ask, range(_THREADS)))
    finally:
        sys.setswitchinterval(usual)
    found = (apart(one, alone[n], tolerance=TOLERANCE) for n, each in enumerate(answers) for one in each)
    return next(filter(None, found), None)


def signals(s: Subject) -> str | None:
    """Fit and score with the signals that the model reads, and score without them."""
    unknown = [str(name) for name in signals_read(s.kind) if name not in get_args(Signal)]
    if unknown:
        return f"a model that reads {', '.join(unknown)}, of {', '.join(get_args(Signal))}"
    if not signals_read(s.kind):
        return None
    fitted, again = (_with_signals(s)[0] for _ in range(2))
    asked = signals_of(s.asked, SEED)
    found = model_scores(fitted, s.asked.copy(), asked)
    if found.shape != s.asked.shape:
        return f"the shape {found.shape} for histories of the shape {s.asked.shape}"
    differ = apart(found, model_scores(again, s.asked.copy(), asked))
    return unsound(found) or unsound(fitted.score(s.asked.copy())) or (f"{differ} from one seed" if differ else None)


def signals_stay(s: Subject) -> str | None:
    if not signals_read(s.kind):
        return None
    model, given, before = _with_signals(s)
    asked = signals_of(s.asked, SEED)
    model_scores(model, s.asked.copy(), asked)
    pairs = [(given, before), (asked, signals_of(s.asked, SEED))]
    same = (_same(_matrix(now, name), _matrix(old, name)) for now, old in pairs for name in vars(old))
    return None if all(same) else "changed signals"


def _with_signals(s: Subject) -> tuple[Recommender, Extra, Extra]:
    """Return a model fitted with signals, these signals after the fit, and as they were before."""
    model, given = s.fresh(), signals_of(s.train, SEED)
    valid = replace(deepcopy(s.valid), extra=signals_of(s.valid.history, SEED))
    read = read_by(model, given)
    for _ in fit_in_epochs(model, s.train.copy(), valid, read, rng=SEED):
        pass
    return model, given, signals_of(s.train, SEED)


def _matrix(extra: Extra, name: str) -> Csr:
    found = getattr(extra, name)
    matrix: Csr = found.matrix if isinstance(found, Features) else found
    return matrix


def learns_tastes(s: Subject) -> str | None:
    """Even users have the even items and odd users the odd ones; one item of a new user is withheld."""
    n_items = 20
    board = np.indices((60, n_items)).sum(axis=0) % 2 == 0
    model = s.fit(csr_array(board.astype(np.float32)), None)
    for withheld in (4, 7):
        history = csr_array((board[[withheld]] & (np.arange(n_items) != withheld)).astype(np.float32))
        found = int(top_k(model.score(history.copy()), history, 1)[0][0, 0])
        if found != withheld:
            return f"item {found} before item {withheld}"
    return None


def apart(one: FloatArray, other: FloatArray, *, tolerance: float = 0.0) -> str | None:
    """Return how much two arrays of scores differ, or None."""
    if one.shape != other.shape:
        return f"scores of the shapes {one.shape} and {other.shape}"
    a, b = (np.asarray(scores, np.float64) for scores in (one, other))
    differ = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not differ.any():
        return None
    gap = float(np.abs(a[differ] - b[differ]).max())
    largest = float(np.abs(a, where=np.isfinite(a), out=np.zeros_like(a)).max())
    return None if gap <= tolerance * largest else f"scores that differ by up to {gap:.3g}"


def unsound(scores: FloatArray) -> str | None:
    """Return how many scores are NaN or +inf, or None."""
    for what, found in (("NaN", np.isnan(scores)), ("+inf", np.isposinf(scores))):
        if found.any():
            return f"{int(found.sum())} scores of {scores.size} that are {what}"
    return None
