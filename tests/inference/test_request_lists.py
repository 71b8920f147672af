"""Lists of single requests are the lists of the frames; names, item facts and reverse steps."""

from itertools import pairwise

import numpy as np
import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.inference.bundle import Bundle
from recfusion.inference.lists import UserList, lists_for_requests
from recfusion.inference.name_search import NameSearch
from recfusion.inference.recommending import recommend
from recfusion.inference.request import ListRequest, Reranking
from recfusion.inference.reverse_steps import reverse_steps
from recfusion.server.loaded_models import ItemFacts
from shop import shop, with_rates


@pytest.fixture(scope="module")
def bundle(groups: Interactions) -> Bundle:
    return with_rates(shop(groups))


def test_users_with_filters_of_their_own_are_scored_together_and_get_what_each_would_get_alone(bundle: Bundle) -> None:
    requests = [
        ListRequest(history=["i01", "i02"], k=5),
        ListRequest(history=["i01"], k=4, where="stock > 0", why=2),
        ListRequest(history=[], k=3),
        ListRequest(
            history=["i11", "i12", "i11", "unknown"], k=6, reranking=Reranking(adventurousness=0.8, popularity=-1)
        ),
        ListRequest(history=["i21"], k=5, again="allowed", reranking=Reranking(diversity=0.5)),
        ListRequest(history=["i21"], k=5, why=3, reranking=Reranking(adventurousness=1)),
    ]
    for request, found in zip(requests, lists_for_requests(bundle, requests), strict=True):
        wanted = recommend(
            bundle, request.history, request.k, filters=request, reranking=request.reranking, why=request.why
        ).to_frame()
        assert isinstance(found, UserList)
        assert [bundle.names[column][0] for column in found.items] == wanted["item"].to_list()
        assert found.scores == pytest.approx(wanted["score"].to_list(), rel=1e-5)
        assert found.basis == wanted["basis"][0]
        assert found.unknown == [item for item in request.history or () if item == "unknown"]
        if request.why:
            assert found.explanation is not None
            assert [[one.text for one in because] for because in found.explanation.because] == [
                [one["text"] for one in because] for because in wanted["because"]
            ]


def test_an_error_in_one_request_leaves_the_others_alone_and_names_its_field(bundle: Bundle) -> None:
    requests = [ListRequest(history=["i01"]), ListRequest(history=["i01"], where="colour == 1")]
    first, wrong, last = lists_for_requests(bundle, [*requests, ListRequest(history=["i02"])])
    assert isinstance(wrong, InputError)
    assert wrong.field == "where"
    assert isinstance(first, UserList)
    assert isinstance(last, UserList)
    assert first == lists_for_requests(bundle, requests[:1])[0]


def test_facts_are_values_that_json_knows(bundle: Bundle) -> None:
    told = ItemFacts(bundle).of(0)
    assert told["item"] == "i00"
    assert told["columns"]["price"] is None
    assert "train_count" not in told["columns"]


def test_changed_columns_make_a_new_bundle_and_leave_the_old_one_as_it_was(bundle: Bundle) -> None:
    before = bundle.matching("stock == 0")
    changed = bundle.with_columns([bundle.items["stock"] * 0])
    assert changed.matching("stock == 0").all()
    assert (bundle.matching("stock == 0") == before).all()
    assert changed.similarity is bundle.similarity


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("godfather", ["The Godfather", "The Godfather: Part II"]),
        ("GODFATER", ["The Godfather", "The Godfather: Part II"]),  # a letter is missing
        ("amelie", ["Amélie"]),
        ("part godfather", ["The Godfather: Part II", "The Godfather"]),
        ("8", ["8 Mile", "District 8"]),
        ("zzz", []),
        ("", ["Toy Story", "The Godfather", "Amélie", "8 Mile", "The Godfather: Part II", "District 8"]),
        ("<script>", []),
    ],
)
def test_names_are_found_in_spite_of_typos_and_the_popular_come_first(query: str, found: list[str]) -> None:
    names = ["The Godfather: Part II", "The Godfather", "Toy Story", "Amélie", "8 Mile", "District 8"]
    search = NameSearch(names, np.array([40, 90, 100, 60, 50, 5]))
    assert [names[place] for place in search.find(query, 6)] == found


def test_steps_grow_and_keep_what_was_there(bundle: Bundle) -> None:
    history = [f"i{n:02d}" for n in range(10)]
    steps = reverse_steps(bundle, history, 5, seed=3)
    columns = [[one.item for one in step.items] for step in steps]
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(columns))
    assert [round(10 * step.share) for step in steps[1:]] == [len(own) for own in columns[1:]]
    assert steps == reverse_steps(bundle, history, 5, seed=3)
    assert {one.known for one in steps[0].items} == {True}
    assert all((one.score is None) == one.known for one in steps[-1].items)
