"""Lists found by cells of items, against scores of all items."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

import recfusion as rf
from conftest import csr, random_csr
from recfusion.core.arrays import Csr
from recfusion.core.errors import InputError
from recfusion.evaluation.topk import top_k
from recfusion.inference.bundle import Bundle
from recfusion.inference.histories import Histories
from recfusion.inference.lists import ListMaker, lists_for_requests
from recfusion.inference.request import Filters, ListRequest, Reranking
from recfusion.models import inverted_index as index
from recfusion.models.abilities import find_lists
from recfusion.models.base import Shape
from recfusion.models.inverted_index import Index, usual_cells
from recfusion.models.thinning.local import ThinningLocal

GIVEN: dict[str, Any] = {"l2": 2.0, "nu": 0.3, "kappa": 0.5, "b": 0.5, "c": 0.2}
NOTHING = csr([[]], 300)


@pytest.fixture
def _all_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a search look at everything, so that it is exact."""
    monkeypatch.setattr(index, "_SHARE", 1.0)


@pytest.fixture
def _few_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_SHARE", 0.1)
    monkeypatch.setattr(index, "_FEWEST", 1)
    monkeypatch.setattr(index, "_NEIGHBOURS", 2)


def clustered(n_items: int = 300, groups: int = 10) -> np.ndarray[Any, np.dtype[np.float32]]:
    rng = np.random.default_rng(0)
    centres = 5 * rng.standard_normal((groups, 8))
    return (centres[np.arange(n_items) % groups] + rng.standard_normal((n_items, 8))).astype(np.float32)


def seen_rows(n_users: int) -> Csr:
    return random_csr(n_users, 300, 0.03, seed=1)


@pytest.mark.usefixtures("_all_cells")
@pytest.mark.parametrize("k", [1, 7, 300, 1000, 3 * 10**9])
@pytest.mark.parametrize("rule", [None, "half", "few"])
def test_a_search_of_all_cells_is_exact(k: int, rule: str | None) -> None:
    vectors = clustered()
    found = Index.of(np.ascontiguousarray(vectors.T), 12, np.random.default_rng(0))
    codes = np.random.default_rng(1).standard_normal((6, 8)).astype(np.float32)
    codes[0] = 0  # all scores are equal: the first items come
    seen = seen_rows(6)
    beside = np.random.default_rng(2).random((6, 300)).astype(np.float32)
    beside[0] = 0
    near = csr_array(beside * (random_csr(6, 300, 0.1, 3).toarray() > 0))
    allowed = None
    if rule is not None:
        allowed = np.random.default_rng(4).random(300) < (0.5 if rule == "half" else 0.01)
    scores = codes @ vectors.T + near.toarray()
    if allowed is not None:
        scores[:, ~allowed] = -np.inf
    items, values = top_k(scores, seen, k)
    lists, their = found.search(codes, k, seen, near, allowed)
    assert (lists == items).all()
    assert their == pytest.approx(values, abs=1e-5)


@pytest.mark.usefixtures("_few_cells")
def test_a_search_of_few_cells_finds_the_best_with_their_true_scores() -> None:
    vectors = clustered()
    found = Index.of(np.ascontiguousarray(vectors.T), 10, np.random.default_rng(0))
    codes = vectors[:20]
    nothing = csr([[]] * 20, 300)
    items, values = found.search(codes, 10, nothing, nothing)
    scores = codes @ vectors.T
    truth, _ = top_k(scores.copy(), nothing, 10)
    hit = np.mean([np.isin(one, own).mean() for one, own in zip(truth, items, strict=True)])
    assert hit > 0.9
    assert values == pytest.approx(np.take_along_axis(scores, items, 1), rel=1e-5)
    may, sizes, none = np.ones(300, bool), np.diff(found.starts), (items[0, :0], values[0, :0])
    looked_at = [len(found._candidates(code, may, sizes, 1, *none)[0]) for code in codes]
    assert max(looked_at) < 100


@pytest.mark.usefixtures("_few_cells")
def test_neighbours_are_found_in_whatever_cell() -> None:
    vectors = clustered()
    found = Index.of(np.ascontiguousarray(vectors.T), 10, np.random.default_rng(0))
    code = vectors[:1]
    far = int(np.argmin(code @ vectors.T))  # the last item that anybody would look at
    near = csr_array(([np.float32(1e4)], [far], [0, 1]), shape=(1, 300))
    items, values = found.search(code, 3, NOTHING, near)
    assert items[0, 0] == far
    assert values[0, 0] == pytest.approx(float(code[0] @ vectors[far]) + 1e4)


@pytest.mark.usefixtures("_few_cells")
@pytest.mark.parametrize("count", [8, 60])  # fewer than are looked at without rules, and more
def test_rules_widen_the_search_until_the_list_is_full(count: int) -> None:
    vectors = clustered()
    found = Index.of(np.ascontiguousarray(vectors.T), 10, np.random.default_rng(0))
    code = vectors[:1]
    worst = np.argsort(code[0] @ vectors.T)[:count]
    allowed = np.isin(np.arange(300), worst)
    items, _ = found.search(code, count, NOTHING, NOTHING, allowed)
    assert items[0].tolist() == worst[::-1].tolist()


@pytest.mark.usefixtures("_few_cells")
def test_neighbours_that_may_not_come_leave_their_places_to_others() -> None:
    vectors = clustered()
    found = Index.of(np.ascontiguousarray(vectors.T), 10, np.random.default_rng(0))
    code = vectors[:1]
    far = np.argsort(code[0] @ vectors.T)[:4]  # of which two alone are looked at
    weights = np.array([9e4, 8e4, 7e4, 6e4], np.float32)
    near = csr_array((weights, far, [0, 4]), shape=(1, 300))
    items, _ = found.search(code, 2, NOTHING, near, ~np.isin(np.arange(300), far[:2]))
    assert items[0].tolist() == far[2:].tolist()


def test_scores_that_are_no_numbers_are_said_to_be_such() -> None:
    found = Index.of(np.ascontiguousarray(clustered().T), 10, np.random.default_rng(0))
    with pytest.raises(InputError, match="not numbers"):
        found.search(np.full((1, 8), np.nan, np.float32), 5, NOTHING, NOTHING)


def test_a_model_that_is_not_fitted_finds_nothing() -> None:
    assert not ThinningLocal().finds


def test_every_item_is_in_the_cell_of_its_nearest_centre() -> None:
    vectors = clustered(50)
    found = Index.of(np.ascontiguousarray(vectors.T), 7, np.random.default_rng(0))
    found.check(50)
    assert (found.vectors == vectors[found.order].T).all()
    assert (found.order[found.places] == np.arange(50)).all()
    cell = np.searchsorted(found.starts, found.places, side="right") - 1
    apart = ((vectors[:, None] - found.centres[None, :, :8]) ** 2).sum(2)
    assert (apart.argmin(1) == cell).all()
    spread = [np.sqrt(apart[cell == one, one].mean()) for one in range(7)]
    assert found.centres[:, 8] == pytest.approx(spread, rel=1e-4)


def test_equal_vectors_and_more_cells_than_items_break_nothing() -> None:
    found = Index.of(np.ones((3, 5), np.float32), 9, np.random.default_rng(0))
    found.check(5)
    items, _ = found.search(np.ones((1, 3), np.float32), 2, csr([[0]], 5), csr([[]], 5))
    assert items.tolist() == [[1, 2]]


def test_an_index_is_usual_for_many_items_alone() -> None:
    assert usual_cells(199_999) == 0
    assert usual_cells(1_000_000) == 2000


@pytest.mark.usefixtures("_all_cells")
@pytest.mark.parametrize("neighbours", [0, 5])
def test_a_model_with_an_index_is_the_one_without(neighbours: int) -> None:
    train = random_csr(80, 300, 0.05, seed=0)
    plain, indexed = (
        ThinningLocal(**GIVEN, neighbours=neighbours, factors=6, cells=cells).fit(train, rng=0) for cells in (0, 9)
    )
    assert not plain.finds
    assert indexed.finds
    assert indexed.score(train) == pytest.approx(plain.score(train), abs=1e-5)
    items = np.array([3, 299, 0])
    assert indexed.reasons(train[[2]], items).parts == pytest.approx(plain.reasons(train[[2]], items).parts, abs=1e-5)
    truth, values = top_k(indexed.score(train), train, 10)
    assert (find_lists(plain, train, 10)[0] == truth).all()
    found, their = indexed.find(train, 10)
    assert (found == truth).all()
    assert their == pytest.approx(values, abs=1e-5)
    again = ThinningLocal(**GIVEN, neighbours=neighbours, factors=6, cells=9)
    again.load_state(indexed.state(), indexed.chosen(), 300)
    assert (again.find(train, 10)[0] == found).all()


def test_a_model_saved_before_there_was_an_index_still_loads() -> None:
    train = random_csr(40, 30, 0.2, seed=0)
    model = ThinningLocal(**GIVEN, neighbours=5, factors=4).fit(train, rng=0)
    old = {name: array for name, array in model.state().items() if name not in ("order_", "starts_", "centres_")}
    again = ThinningLocal(**GIVEN, neighbours=5, factors=4)
    again.load_state(old, {}, 30)
    assert (again.score(train) == model.score(train)).all()


@pytest.mark.parametrize("damage", ["twice", "short", "cut", "outside", "no order", "narrow", "flat", "other weights"])
def test_an_index_that_does_not_hold_each_item_once_is_refused(damage: str) -> None:
    train = random_csr(40, 30, 0.2, seed=0)
    model = ThinningLocal(**GIVEN, neighbours=5, factors=4, cells=3).fit(train, rng=0)
    state = {name: array.copy() for name, array in model.state().items()}
    if damage == "twice":
        state["order_"][0] = state["order_"][1]
    if damage == "short":
        state["order_"] = state["order_"][:-1]
    if damage == "cut":
        state["starts_"][1] = state["starts_"][2] + 1
    if damage == "outside":
        state["order_"][0] = 30
    if damage == "no order":
        state["order_"] = state["order_"][:0]
    if damage == "narrow":
        state["centres_"] = state["centres_"][:, 1:]
    if damage == "flat":
        state["centres_"] = state["centres_"].ravel()
    if damage == "other weights":
        state["weights_.shape"] = np.array([30, 60])
    with pytest.raises(ValueError, match=r"index|beyond|weights_"):
        ThinningLocal(**GIVEN, neighbours=5, factors=4, cells=3).load_state(state, {}, 30)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a model with an index, of a shop with two kinds of goods."""
    users, items = random_csr(90, 60, 0.15, seed=0).nonzero()
    rows = pl.DataFrame({"user": users, "item": [f"i{item}" for item in items]})
    table = pl.DataFrame({"item": [f"i{item}" for item in range(60)], "kind": ["tea", "jam", "oil"] * 20})
    data = rf.load(rows, items=table)
    model = ThinningLocal(neighbours=0, factors=5, cells=4, tune_trials=0)
    return rf.train(model, data).save(tmp_path / "m")


@pytest.mark.usefixtures("_all_cells")
def test_lists_go_by_the_index_and_obey_rules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = Bundle.load(folder)
    requests = [
        ListRequest(history=["i1", "i2"]),
        ListRequest(history=["i3"], where="kind == 'tea'"),
        ListRequest(history=["i5"], reranking=Reranking(popularity=1)),
    ]
    by_index = lists_for_requests(bundle, requests)
    calls, find = [], ThinningLocal.find

    def counted(self: ThinningLocal, *given: Any) -> Any:
        calls.append(given)
        return find(self, *given)

    monkeypatch.setattr(ThinningLocal, "find", counted)
    lists_for_requests(bundle, requests)
    assert len(calls) == 2  # re-ranking changes the scores of all items
    monkeypatch.setattr(ThinningLocal, "finds", False)
    for one, other in zip(by_index, lists_for_requests(bundle, requests), strict=True):
        assert not isinstance(one, InputError)
        assert not isinstance(other, InputError)
        assert one.items == other.items
        assert one.scores == pytest.approx(other.scores, abs=1e-5)


@pytest.mark.usefixtures("_few_cells")
@pytest.mark.parametrize("where", ["", "kind == 'tea'"])
def test_somebody_without_a_history_gets_what_is_popular_and_changes_nobody_else_s_list(
    folder: Path, where: str
) -> None:
    bundle = Bundle.load(folder)
    maker, n_items = ListMaker.of(bundle, Filters(where=where or None)), len(bundle.items)
    lists = maker.lists(Histories(csr([[], [1]], n_items)), 3)
    may = bundle.matching(where) if where else np.ones(n_items, bool)
    assert lists.items[0].tolist() == np.argsort(-np.where(may, bundle.counts, -1), kind="stable")[:3].tolist()
    alone = maker.lists(Histories(csr([[1]], n_items)), 3)
    assert (lists.items[1], lists.scores[1]) == (pytest.approx(alone.items[0]), pytest.approx(alone.scores[0]))


def test_a_part_of_a_mixture_needs_no_index() -> None:
    assert ThinningLocal().economical(Shape(10**6, 10**6, 10**8)).cells == 0
