"""Models that read grades, times or features, served: histories say more, and new items join without a training."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import Preparation
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.inference.recommending import recommend
from running import Client, running, settings_for
from shop import shop

ANN = "ann@example.org"
ENTRIES = [{"item": 3, "rating": 5, "time": 900}, {"item": 4, "rating": 1, "time": 300}, {"item": 5, "time": 100}]


def rated() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    rows = [
        {"user": user, "item": int(item), "rating": float(rng.integers(1, 6)), "time": int(rng.integers(10**9))}
        for user in range(60)
        for item in rng.permutation(15)[:10]
    ]
    return pl.DataFrame(rows)


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = load(rated(), Preparation(min_items_per_user=2, min_users_per_item=1), name="rated")
    settings = {"tune_trials": 0, "recency": 1.0, "l2": 5.0}
    made = train("thinning-signals", data, settings, signals="graded,timed")
    return made.save(tmp_path_factory.mktemp("graded") / "graded")


@pytest.fixture
def client(graded: Path, tmp_path: Path) -> Iterator[Client]:
    with running(settings_for(graded).model_copy(update={"events": tmp_path / "events.sqlite"})) as client:
        yield client


def scores(found: Any) -> dict[int, float]:
    return {int(place["item"]): place["score"] for place in found["items"]}


def test_grades_and_times_of_a_request_count_as_they_do_in_python(graded: Path, client: Client) -> None:
    found = client.post("/recommend", {"history": ENTRIES, "k": 15, "why": 5}).json
    wanted = recommend(Bundle.load(graded), ENTRIES, k=15, why=5).frame
    assert list(scores(found)) == wanted["item"].to_list()
    assert list(scores(found).values()) == pytest.approx(wanted["score"].to_list(), rel=1e-5)
    assert 4 not in scores(found)
    because = [[one["text"] for one in place["because"]] for place in found["items"]]
    assert because == [[one["text"] for one in own] for own in wanted["because"]]
    plain = client.post("/recommend", {"history": [3, 5], "k": 15}).json
    assert scores(plain) == pytest.approx(
        dict(recommend(Bundle.load(graded), [3, 5], k=15).frame.select("item", "score").iter_rows()), rel=1e-5
    )
    assert scores(plain) != scores(client.post("/recommend", {"history": [5, 3], "k": 15}).json)


def test_the_times_of_events_order_what_a_user_has_and_a_return_is_a_dislike(graded: Path, client: Client) -> None:
    for item, when in ((3, 900), (5, 100), (6, 500)):
        client.post("/events", {"user": ANN, "item": item, "time": when})
    bundle, asked = Bundle.load(graded), {"user": ANN, "k": 15}
    own = [{"item": 5, "time": 100}, {"item": 6, "time": 500}, {"item": 3, "time": 900}]
    wanted = recommend(bundle, own, k=15).frame
    assert list(scores(client.post("/recommend", asked).json).values()) == pytest.approx(wanted["score"].to_list())
    client.post("/events", {"user": ANN, "item": 6, "kind": "return", "time": 950})
    own[1] = {"item": 6, "time": 950, "rating": 0}
    wanted = recommend(bundle, own, k=15).frame
    found = scores(client.post("/recommend", asked).json)
    assert 6 not in found
    assert list(found.values()) == pytest.approx(wanted["score"].to_list(), rel=1e-5)


def test_what_a_request_adds_without_a_time_is_newest_and_half_timed_histories_are_refused(
    graded: Path, client: Client
) -> None:
    for item, when in ((3, 900), (5, 100)):  # the newest event was told first
        client.post("/events", {"user": ANN, "item": item, "time": when})
    found = client.post("/recommend", {"user": ANN, "history": [6, 7], "k": 15}).json
    own = [{"item": item, "time": when} for item, when in ((3, 900), (5, 100), (6, 901), (7, 902))]
    wanted = recommend(Bundle.load(graded), own, k=15).frame
    assert list(scores(found).values()) == pytest.approx(wanted["score"].to_list(), rel=1e-5)
    reply = client.post("/recommend", {"user": ANN, "history": [6, {"item": 7, "time": 5}]})
    assert (reply.status, reply.json["field"]) == (422, "history")
    assert reply.json["error"].startswith("Expected a time for each item of a history or for none, got times for 1 of")


def test_the_file_of_histories_brings_its_grades_and_times(graded: Path, tmp_path: Path) -> None:
    (tmp_path / "known.csv").write_text("user,item,rating,time\nann,3,5,900\nann,4,1,300\nann,5,4,100\n")
    events = {"histories": (tmp_path / "known.csv",), "events": tmp_path / "events.sqlite"}
    with running(settings_for(graded).model_copy(update=events)) as client:
        known = scores(client.post("/recommend", {"user": "ann", "k": 15}).json)
        assert known == scores(client.post("/recommend", {"history": ENTRIES, "k": 15}).json)


def test_what_the_model_cannot_read_is_one_sentence(groups: Interactions, client: Client, tmp_path: Path) -> None:
    wrong = client.post("/recommend", {"history": [{"item": 3, "rating": "good"}]})
    assert (wrong.status, wrong.json["field"]) == (422, "history.0.rating")
    with running(settings_for(shop(groups, "popularity").save(tmp_path / "plain"))) as plain:
        for name, signal, value in (("rating", "grades", 5), ("time", "times", 10)):
            reply = plain.post("/recommend", {"history": ["i01", {"item": "i02", name: value}]})
            assert (reply.status, reply.json["field"]) == (422, "history")
            assert f"without {signal}, which this model does not read" in reply.json["error"]
        assert plain.post("/recommend", {"history": ["i01", {"item": "i02"}]}).status == 200


def test_a_model_of_stars_names_grades_off_its_scale_and_knows_what_was_given_back(
    tmp_path: Path, installed_studies: None
) -> None:
    data = load(rated(), Preparation(min_items_per_user=2, min_users_per_item=1), name="rated")
    made = train("recfusion-grades", data, {"max_epochs": 1, "width": 4}, signals="graded").save(tmp_path / "stars")
    with running(settings_for(made).model_copy(update={"events": tmp_path / "events.sqlite"})) as client:
        reply = client.post("/recommend", {"history": [{"item": 3, "rating": 7}]})
        assert (reply.status, reply.json["field"]) == (422, "history")
        assert reply.json["error"] == "Expected ratings 1, 2, 3, 4, 5 in the history, got 7: correct it."
        client.post("/events", {"user": ANN, "item": 6})
        client.post("/events", {"user": ANN, "item": 6, "kind": "return"})
        found = client.post("/recommend", {"user": ANN, "k": 15})
        assert found.status == 200
        assert 6 not in scores(found.json)


@pytest.fixture(scope="module")
def teas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Users who have either teas or books, and a model that knows what the items are."""
    place = tmp_path_factory.mktemp("teas")
    rng = np.random.default_rng(0)
    rows = [(u, 10 * (u % 2) + i) for u in range(80) for i in rng.permutation(10)[:6]]
    pl.DataFrame(rows, schema=["user", "item"], orient="row").write_csv(place / "data.csv")
    kinds = ["Tea|Hot" if n < 10 else "Book|Paper" for n in range(20)]
    pl.DataFrame({"item": range(20), "kind": kinds, "stock": 1}).write_csv(place / "items.csv")
    data = load(place / "data.csv", items=place / "items.csv", feature_columns="kind")
    return train("thinning-features", data, {"tune_trials": 0, "l2": 20}, signals="features").save(place / "teas")


def test_a_new_item_is_in_a_list_right_after_it_was_described_and_after_a_restart(teas: Path, tmp_path: Path) -> None:
    settings = settings_for(teas).model_copy(update={"events": tmp_path / "events.sqlite"})
    asked = {"history": [*range(9)], "k": 3, "why": 2}
    new = {"items": [{"item": 50, "columns": {"kind": "Tea|Hot", "stock": 2}}, {"item": 51, "columns": {"kind": "?"}}]}
    with running(settings) as client:
        assert "50" not in [place["item"] for place in client.post("/recommend", asked).json["items"]]
        told = client.ask("PUT", "/items", new).json
        assert (told["changed"], told["added"], told["unknown"]) == (2, ["50"], ["51"])
        assert told["note"].endswith("or none of its features: describe kind.")
        first = next(p for p in client.post("/recommend", asked).json["items"] if p["item"] == "50")
        assert first["because"][0]["text"].startswith("its kind: ")
        assert first["columns"] == {"kind": "Tea|Hot", "stock": 2}
        by_new = client.post("/recommend", {"history": [50], "k": 5}).json
        assert {int(place["item"]) for place in by_new["items"]} <= {*range(10)}
    with running(settings) as client:
        again = next(p for p in client.post("/recommend", asked).json["items"] if p["item"] == "50")
        assert again["score"] == pytest.approx(first["score"])
        client.ask("PUT", "/items", {"items": [{"item": 50, "columns": {"stock": 0}}]})
        gone = client.post("/recommend", asked | {"where": "stock > 0"}).json["items"]
        assert "50" not in [place["item"] for place in gone]
        client.ask("PUT", "/items", {"items": [{"item": 50, "columns": {"kind": "Book|Paper"}}]})
        assert "50" not in [place["item"] for place in client.post("/recommend", asked).json["items"]]
        books = client.post("/recommend", {"history": [*range(10, 19)], "k": 3}).json["items"]
        assert "50" in [place["item"] for place in books]
        assert client.post("/similar", {"item": 50, "k": 3}).status == 200
