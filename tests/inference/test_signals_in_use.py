"""A model of graded and timed signals in use: histories with ratings and times, dislikes, returns and reasons."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from recfusion.core.errors import InputError
from recfusion.data.load import load
from recfusion.data.options import Preparation, SplitPlan
from recfusion.evaluation.scoring import scores as model_scores
from recfusion.experiments.train import evaluate_bundle, train
from recfusion.inference.bundle import Bundle
from recfusion.inference.histories import Histories, parse_histories
from recfusion.inference.lists import ListMaker, UserList, lists_for_requests
from recfusion.inference.recommending import recommend
from recfusion.inference.request import Filters, ListRequest, Reranking
from recfusion.models.abilities import lowest_rating
from recfusion.models.base import model_reasons
from shop import with_rates
from tale import TALE


def rated(n_users: int = 60) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    rows = [
        {"user": user, "item": int(item), "rating": float(rng.integers(1, 6)), "time": int(rng.integers(10**9))}
        for user in range(n_users)
        for item in rng.permutation(15)[:10]
    ]
    return pl.DataFrame(rows)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    data = load(rated(), Preparation(min_items_per_user=2, min_users_per_item=1), name="rated")
    return train("thinning-signals", data, {"tune_trials": 0}, signals="graded,timed")


def test_ratings_below_the_threshold_are_dislikes_and_the_others_the_history(bundle: Bundle) -> None:
    given = [{"item": 3, "rating": 5, "time": 20}, {"item": 4, "rating": 1, "time": 30}, {"item": 5, "time": 10}]
    known = parse_histories(bundle, given)
    assert known.matrix.indices.tolist() == [3, 5]
    assert known.extra is not None
    assert known.extra.grades is not None
    assert known.extra.grades.data.tolist() == [5, 4]  # liked without a rating: the least that is
    assert known.extra.disliked is not None
    assert known.extra.disliked.indices.tolist() == [4]
    assert known.disliked == 1


def test_rows_without_times_are_in_order_oldest_first(bundle: Bundle) -> None:
    extra = parse_histories(bundle, [7, 3, 5]).extra
    assert extra is not None
    assert extra.times is not None
    assert dict(zip(extra.times.indices.tolist(), extra.times.data.tolist(), strict=True)) == {7: 0, 3: 1, 5: 2}


def times_of(known: Histories, row: int) -> dict[int, int]:
    assert known.extra is not None
    assert known.extra.times is not None
    own = known.extra.times[[row]]
    return dict(zip(own.indices.tolist(), own.data.tolist(), strict=True))


def test_a_user_s_times_do_not_depend_on_who_else_is_asked_for(bundle: Bundle) -> None:
    timed = [{"item": 3, "time": 900}, {"item": 4, "time": 100}]
    known = parse_histories(bundle, {"a": timed, "b": [7, 3], "c": []})
    assert [times_of(known, row) for row in range(3)] == [{3: 900, 4: 100}, {7: 0, 3: 1}, {}]
    together = recommend(bundle, {"a": timed, "b": [7, 3]}, k=5).frame
    for user, own in {"a": timed, "b": [7, 3]}.items():
        alone = recommend(bundle, {user: own}, k=5).frame
        assert together.filter(user=user)["score"].to_list() == pytest.approx(alone["score"].to_list())


def test_a_user_without_items_leaves_the_others_their_times(bundle: Bundle, caplog: pytest.LogCaptureFixture) -> None:
    rows: dict[str, list[Any]] = {
        "user": ["a", "a", "new"],
        "item": [3, 4, None],
        "rating": [5.0, 5.0, None],
        "time": [900, 100, None],
    }
    known = parse_histories(bundle, pl.DataFrame(rows))
    assert times_of(known, 0) == {3: 900, 4: 100}
    assert (known.matrix.shape[0], caplog.messages) == (2, [])
    many = {name: (values[:2] * 20)[:-1] + values[1:2] for name, values in rows.items()}
    many["time"][-1] = None
    parse_histories(bundle, pl.DataFrame(many))
    assert caplog.messages == ["1 rows without a value or with one that cannot be parsed are left out."]


def test_times_for_some_items_of_a_history_are_refused(bundle: Bundle) -> None:
    half = [{"item": 3, "time": 900}, 4, {"item": 99, "time": 5}]
    with pytest.raises(InputError, match=r"for each item of a history or for none, got times for 2 of 3: add the othe"):
        parse_histories(bundle, half)
    with pytest.raises(InputError, match="got times for 2 of 3 of user number 2: add"):
        parse_histories(bundle, {"bob": [1, 2], "ann": half})


def test_ids_and_described_items_may_stand_in_one_history(bundle: Bundle) -> None:
    known = parse_histories(bundle, [7, {"item": 3, "rating": 1}, 5])
    assert known.matrix.indices.tolist() == [5, 7]
    assert known.disliked == 1


def test_a_model_of_ones_refuses_grades_and_times() -> None:
    data = load(rated(), Preparation(min_items_per_user=2, min_users_per_item=1), name="rated")
    plain = train("popularity", data)
    for name in ("rating", "time"):
        with pytest.raises(InputError, match=f"Expected items without {'grades' if name == 'rating' else 'times'}"):
            parse_histories(plain, [{"item": 3, name: 5}])
    assert parse_histories(plain, [{"item": 3}, 4]).matrix.nnz == 2


def test_of_two_ratings_of_an_item_the_last_counts(bundle: Bundle) -> None:
    known = parse_histories(bundle, [{"item": 3, "rating": 1}, {"item": 3, "rating": 5}])
    assert known.matrix.indices.tolist() == [3]
    assert known.disliked == 0


def test_what_was_disliked_is_never_recommended(bundle: Bundle) -> None:
    given = [{"item": 3, "rating": 5}, {"item": 4, "rating": 1}]
    lists = recommend(bundle, given, k=15).frame
    assert set(lists["item"]) == set(range(15)) - {3, 4}
    allowed = recommend(with_rates(bundle), given, k=15, filters=Filters(again="allowed")).frame
    assert set(allowed["item"]) == set(range(15)) - {4}


def test_a_dislike_can_be_a_reason(bundle: Bundle) -> None:
    given = [{"item": 3, "rating": 5}, *({"item": item, "rating": 1} for item in (4, 6, 8, 9))]
    texts = [one["text"] for row in recommend(bundle, given, k=10, why=5).frame["because"] for one in row]
    assert any(text.startswith("not ") for text in texts)


def test_a_frame_of_ratings_and_times_is_read(bundle: Bundle) -> None:
    frame = pl.DataFrame({"user": ["a", "a"], "item": [1, 2], "rating": [5.0, 2.0], "time": [5, 9]})
    known = parse_histories(bundle, frame)
    assert known.matrix.indices.tolist() == [1]
    assert known.disliked == 1


def test_wrong_entries_are_one_sentence(bundle: Bundle) -> None:
    with pytest.raises(InputError, match="Expected a list of items, each an id or"):
        parse_histories(bundle, [{"item": 3, "stars": 5}])
    with pytest.raises(InputError, match=r"0\.rating: input should be a valid number, got 'good'"):
        parse_histories(bundle, [{"item": 3, "rating": "good"}])


def test_assumed_items_are_as_new_as_the_newest_with_the_median_rating(bundle: Bundle) -> None:
    given = [
        {"item": 3, "rating": 5, "time": 10},
        {"item": 7, "rating": 4, "time": 90},
        {"item": 4, "rating": 1, "time": 50},
    ]
    histories = parse_histories(bundle, {"one": given, "nobody": []})
    maker = ListMaker.of(bundle, None, Reranking(adventurousness=0.5))
    scores = model_scores(bundle.model, histories.matrix, histories.extra)
    extended = maker._extend(histories, scores)
    added = sorted(set(extended.matrix[[0]].indices.tolist()) - {3, 7})
    assert added
    assert extended.extra is not None
    assert extended.extra.times is not None
    assert extended.extra.grades is not None
    times, grades = (
        dict(zip(m[[0]].indices.tolist(), m[[0]].data.tolist(), strict=True))
        for m in (extended.extra.times, extended.extra.grades)
    )
    assert times == {3: 10, 7: 90} | dict.fromkeys(added, 90)
    assert grades == {3: 5, 7: 4} | dict.fromkeys(added, 4.5)
    found = recommend(bundle, given, k=5, why=2, reranking=Reranking(adventurousness=0.5)).frame
    assert len(found) == 5
    assert not {3, 4, 7} & set(found["item"])


def test_a_saved_model_of_signals_is_judged_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rated.csv"
    rated().write_csv(path)
    made = train(
        "thinning-signals",
        load(path, Preparation(min_items_per_user=2, min_users_per_item=1)),
        {"tune_trials": 0},
        signals="graded",
        plan=SplitPlan(valid=0.2, test=0.2),
    )
    loaded = Bundle.load(made.save(tmp_path / "model"))
    assert loaded.protocol.signals.used == ("grades",)
    assert evaluate_bundle(loaded) == evaluate_bundle(made)
    rated().with_columns(pl.when(pl.col("rating") == 1).then(2.0).otherwise("rating").alias("rating")).write_csv(path)
    with pytest.raises(InputError, match="Expected the grades that the model was trained on"):
        evaluate_bundle(loaded)


def test_all_users_are_learned_from_with_their_signals() -> None:
    data = load(rated(), Preparation(min_items_per_user=2, min_users_per_item=1), name="rated")
    made = train("thinning-signals", data, {"tune_trials": 0}, signals="graded", all_users=True)
    assert made.model.weights_.shape == (30, 15)  # type: ignore[attr-defined]


def test_returns_are_taken_off_a_history() -> None:
    rows = rated().select("user", "item", quantity=pl.lit(1)).with_row_index().drop("index")
    made = train("thinning-linear", load(rows, Preparation(min_users_per_item=1), name="shop"), {"tune_trials": 0})
    orders = pl.DataFrame({"user": ["a"] * 3, "item": [1, 2, 1], "quantity": [2, 1, -2]})
    known = parse_histories(made, orders)
    assert known.matrix.indices.tolist() == [2]
    graded = train(
        *("thinning-signals", load(rows, Preparation(min_users_per_item=1), name="shop"), {"tune_trials": 0}),
        signals="graded",
    )
    known = parse_histories(graded, orders)
    assert known.matrix.indices.tolist() == [2]
    assert known.disliked == 1


def test_a_reader_without_reasons_of_its_own_is_explained_by_leaving_items_out_with_their_times() -> None:
    data = load(rated(), Preparation(min_items_per_user=2, min_users_per_item=1), name="rated")
    made = train(TALE(l2=5.0, tau=30.0, span=2.0), data, signals="timed", all_users=True)
    model = made.model
    assert isinstance(model, TALE)
    known = parse_histories(made, [{"item": 3, "time": 10}, {"item": 7, "time": 20}, {"item": 5, "time": 5}])
    less = parse_histories(made, [{"item": 7, "time": 20}, {"item": 5, "time": 5}])
    assert known.extra is not None
    found = model_reasons(model, known.matrix, np.array([1, 9]), known.extra)
    lost = model.score(known.matrix, extra=known.extra) - model.score(less.matrix, extra=less.extra)
    assert found.kind == "left out"
    assert found.parts[:, found.sources.index((3,))] == pytest.approx(lost[0, [1, 9]], abs=1e-6)


@pytest.mark.parametrize("name", ["recfusion-seq", "recfusion-grades"])
def test_networks_that_read_signals_are_trained_saved_and_used_as_any_other(
    name: str, tmp_path: Path, installed_studies: None
) -> None:
    data = load(rated(), Preparation(min_items_per_user=2, min_users_per_item=1), name="rated")
    small = {"max_epochs": 2, "width": 8, "layers": 1}
    shown: list[int] = []
    signals = {"recfusion-seq": "timed", "recfusion-grades": "graded"}[name]
    made = train(name, data, small, signals=signals, on_epoch=lambda epoch: shown.append(epoch.number))
    assert shown == [1, 2]
    made.save(tmp_path / "model")
    loaded = Bundle.load(tmp_path / "model")
    every = [{"item": 3, "rating": 5, "time": 20}, {"item": 4, "rating": 1, "time": 30}, {"item": 5, "time": 10}]
    read = {"item", {"timed": "time", "graded": "rating"}[signals]}
    history = [{key: value for key, value in one.items() if key in read} for one in every]
    lists = [recommend(one, history, k=5, why=1).frame for one in (made, loaded)]
    assert lists[0].equals(lists[1])
    assert not {3, 4, 5} & set(lists[0]["item"])


def test_a_grade_off_the_scale_in_a_history_leaves_other_users_alone(installed_studies: None) -> None:
    data = load(rated(), Preparation(min_items_per_user=2, min_users_per_item=1), name="rated")
    stars = train("recfusion-grades", data, {"max_epochs": 1, "width": 4}, signals="graded")
    words = r"Expected ratings 1, 2, 3, 4, 5 in the history, got 7: correct it\.$"
    with pytest.raises(InputError, match=words):
        recommend(stars, [{"item": 3, "rating": 7}, 4])
    good, bad = ([{"item": "3", "rating": rating}, *more] for rating, more in ((5.0, ["4"]), (7.0, [])))
    requests = [ListRequest(history=history) for history in (good, bad, good)]
    first, wrong, last = lists_for_requests(stars, requests)
    assert isinstance(wrong, InputError)
    assert "in the history, got 7" in str(wrong)
    assert wrong.field == "history"
    assert isinstance(first, UserList)
    assert first == last
    returned = ListRequest(history=[{"item": "3", "rating": lowest_rating(stars.model)}])
    assert isinstance(lists_for_requests(stars, [returned])[0], UserList)


def test_reasons_say_how_often_an_item_was_bought_and_whether_lately() -> None:
    rows = rated().select("user", "item", "time", quantity=pl.lit(1))
    data = load(rows, Preparation(min_items_per_user=2, min_users_per_item=1), name="shop")
    made = train("thinning-signals", data, {"tune_trials": 0}, signals="graded,timed", all_users=True)
    history = [{"item": item, "rating": count, "time": 10 * item} for item, count in ((1, 3), (2, 1), (3, 2), (4, 1))]
    found = lists_for_requests(made, [ListRequest(history=history, k=10, why=10)])[0]
    assert isinstance(found, UserList)
    assert found.explanation is not None
    texts = {reason.text for because in found.explanation.because for reason in because}
    assert texts == {"1 (3 times)", "2 (recently)", "3 (2 times, recently)", "4 (recently)"}
