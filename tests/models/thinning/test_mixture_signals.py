"""The mixture with ratings and timestamps: what its parts read, weighted histories, and what the fit tells."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conftest import csr
from recfusion.core.arrays import Csr
from recfusion.data.signals import Extra, valued
from recfusion.data.split import Fold
from recfusion.models.base import Shape, model_reasons
from recfusion.models.factors.ials import IALS
from recfusion.models.thinning.mixture import Thinning
from recfusion.models.thinning.mixture_weights import Ballot, standardised
from recfusion.models.thinning.parts import part_scores
from recfusion.models.thinning.plan import plan

N_ITEMS = 12
CHEAP: dict[str, Any] = {"members": "popularity,ease,thinning-linear", "tune_trials": 0}
OTHERS: dict[str, Any] = {"members": "popularity,ease", "tune_trials": 0}  # signals add no part to these
DEFAULT = Thinning().members.split(",")


def chains(n_users: int, seed: int, length: int = 6) -> tuple[Csr, Csr]:
    """Return histories of users who walk along a ring of items, and the times of their entries."""
    starts = np.random.default_rng(seed).integers(0, N_ITEMS, n_users)
    walks = [[(start + step) % N_ITEMS for step in range(length)] for start in starts.tolist()]
    history = csr([sorted(walk) for walk in walks], N_ITEMS)
    times = [walk.index(item) for walk in walks for item in sorted(walk)]
    return history, valued(history, np.array(times, np.int64))


def next_items(n_users: int, seed: int) -> Fold:
    """Return users whose next item is held out."""
    history, times = chains(n_users, seed)
    last = [int(row.indices[when.data.argmax()]) for row, when in zip(history, times, strict=True)]
    held_out = csr([[(item + 1) % N_ITEMS] for item in last], N_ITEMS)
    return Fold(np.arange(n_users), history, held_out, Extra(times=times))


TRAIN, TIMES = chains(60, 0)
EXTRA = Extra(times=TIMES)
VALID = next_items(30, 1)


def test_signals_change_the_plan_of_thinning_denoisers_alone() -> None:
    def parts(members: list[str], **signals: Any) -> list[str]:
        return list(plan(members, Shape(1000, 500, 20_000, **signals)).parts)

    closed = ["thinning-pairs", "thinning-local", "ials"]
    assert parts(DEFAULT) == DEFAULT
    assert parts(DEFAULT, timed=True) == [*closed, "thinning-order", "thinning-order", "thinning-signals"]
    assert parts(closed, timed=True) == [*closed, "thinning-signals"]
    assert parts(closed, dislikes=9) == [*closed, "thinning-signals"]
    assert parts(closed, item_features=3) == [*closed, "thinning-features"]
    assert parts(["ease", "recvae"], timed=True, dislikes=9, item_features=3) == ["ease", "recvae"]
    many = Shape(1000, 60_000, 20_000, dislikes=9, timed=True)
    assert list(plan(DEFAULT, many).parts) == ["thinning-local", "ials"]


def test_the_newest_entries_count_for_more_where_that_finds_more() -> None:
    model = Thinning(**OTHERS).fit(TRAIN, VALID, rng=0, extra=EXTRA)
    assert min(model.recency_.values()) >= 0.5
    assert model.chosen()["recency"] == model.recency_
    plain = Thinning(**OTHERS).fit(TRAIN, VALID, rng=0)
    assert plain.recency_ == {}
    test = next_items(30, 2)
    by_time, without = (Ballot.of({"it": each}, test).ndcg({"it": 1.0}).mean() for each in (model, plain))
    assert by_time > without + 0.1


def test_scores_are_those_of_the_parts_on_weighted_histories() -> None:
    model = Thinning(**CHEAP, recency={"ease": 0.5, "thinning-linear": 1.0}).fit(TRAIN, VALID, rng=0, extra=EXTRA)
    found = model.score(VALID.history, extra=VALID.extra)
    expected = sum(
        weight
        * standardised(part_scores(model.parts_[name], VALID.history, VALID.extra, model._powers(name)), VALID.history)
        for name, weight in model.weights_.items()
    )
    assert found == pytest.approx(expected, abs=1e-5)
    assert model.score(VALID.history) != pytest.approx(found, abs=1e-3)  # without times nothing is weighted


def test_a_mixture_may_ignore_signals() -> None:
    model = Thinning(**CHEAP, use_signals=False).fit(TRAIN, VALID, rng=0, extra=EXTRA)
    plain = Thinning(**CHEAP).fit(TRAIN, VALID, rng=0)
    assert np.array_equal(model.score(VALID.history, extra=VALID.extra), plain.score(VALID.history))


def test_without_validation_users_entries_have_the_usual_weights() -> None:
    model = Thinning(**CHEAP).fit(TRAIN, rng=0, extra=EXTRA)
    assert model.recency_ == {"popularity": 0.5, "ease": 0.5, "thinning-linear": 0.5}


def test_a_saved_mixture_keeps_its_powers() -> None:
    model = Thinning(**CHEAP).fit(TRAIN, VALID, rng=0, extra=EXTRA)
    again = Thinning(**CHEAP)
    again.load_state(model.state(), model.chosen(), N_ITEMS)
    assert again.recency_ == model.recency_
    for extra in (VALID.extra, None):
        assert np.array_equal(again.score(VALID.history, extra=extra), model.score(VALID.history, extra=extra))


def test_reasons_of_weighted_closed_forms_add_up_to_the_scores() -> None:
    model = Thinning(members="ease,thinning-linear", tune_trials=0).fit(TRAIN, VALID, rng=0, extra=EXTRA)
    one = VALID.take(slice(0, 1))
    items = np.setdiff1d(np.arange(N_ITEMS), one.history.indices)
    reasons = model_reasons(model, one.history, items, one.extra)
    assert reasons.kind == "exact"
    sums, scores = reasons.parts.sum(1), model.score(one.history, extra=one.extra)[0, items]
    assert sums - sums.mean() == pytest.approx(scores - scores.mean(), abs=1e-4)


def test_disliked_items_are_no_candidates_of_the_weight_search() -> None:
    """One part only ranks what the user dislikes first; it must not lose by that."""
    valid = VALID.take(slice(0, 5))
    disliked = csr([[(int(item) + 1) % N_ITEMS] for item in valid.held_out.indices], N_ITEMS)
    masked = Fold(valid.users, valid.history, valid.held_out, Extra(disliked=disliked))

    class Clairvoyant:
        def score(self, history: Csr) -> Any:
            return (2 * disliked.toarray() + valid.held_out.toarray()).astype(np.float32)

    parts: Any = {"it": Clairvoyant()}
    assert Ballot.of(parts, masked).ndcg({"it": 1.0}).tolist() == [1.0] * 5
    assert Ballot.of(parts, valid).ndcg({"it": 1.0}).max() < 1


def test_the_fit_tells_what_each_part_adds() -> None:
    model = Thinning(**CHEAP).fit(TRAIN, VALID, rng=0, extra=EXTRA)
    ballot = Ballot.of(model.parts_, VALID, {name: [model._powers(name)] for name in model.parts_})
    ballot = replace(ballot, names=tuple(model.parts_))
    whole = ballot.ndcg(model.weights_).mean()
    for name, added in model.contributions_.items():
        without = ballot.ndcg(model.weights_ | {name: 0.0}).mean()
        assert added == pytest.approx(whole - without, abs=1e-6)
    *parts, times = model.fit_notes()
    assert all(note.startswith(f"{name}: weight ") for name, note in zip(model.weights_, parts, strict=True))
    assert times.startswith("Timestamps add +")


def test_a_weighted_entry_counts_as_so_many_in_ials() -> None:
    """An entry of weight 2 is the same as the entry twice in the loss, with the penalty of the unweighted row."""
    model = IALS(factors=3, iterations=3, tune_trials=0).fit(TRAIN, rng=0)
    history = csr([[1, 4, 7], [0, 1, 2]], N_ITEMS)
    values = np.array([2.0, 0.5, 1.0, 1.0, 1.0, 1.0], np.float32)
    v, l2 = model.items_.astype(np.float64), model._penalties(history).astype(np.float64)
    for row in range(2):
        own, x = v[history[[row]].indices], values[3 * row : 3 * row + 3]
        a = model.alpha0_ * v.T @ v + (own.T * x) @ own + l2[row] * np.eye(3)
        expected = np.linalg.solve(a, own.T @ x)
        assert model.fold_in(valued(history, values))[row] == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_the_fit_tells_what_each_signal_adds() -> None:
    grades = valued(TRAIN, np.full(TRAIN.nnz, 4.0, np.float32))
    assert VALID.extra is not None
    valid = replace(VALID, extra=replace(VALID.extra, grades=valued(VALID.history, np.full(VALID.history.nnz, 4.0))))
    model = Thinning(**OTHERS).fit(TRAIN, valid, rng=0, extra=replace(EXTRA, grades=grades))
    assert set(model.signal_gains_) == {"Ratings", "Timestamps"}
    assert valid.extra is not None
    timeless = Ballot.of({"it": model}, replace(valid, extra=Extra(grades=valid.extra.grades))).ndcg({"it": 1.0})
    whole = Ballot.of({"it": model}, valid).ndcg({"it": 1.0})
    assert model.signal_gains_["Timestamps"] == pytest.approx(whole.mean() - timeless.mean(), abs=1e-6)
    assert model.signal_gains_["Ratings"] == pytest.approx(0, abs=1e-6)  # all are equal
    assert any(note.startswith("Ratings add +0.00 points") for note in model.fit_notes())
