"""One user's list without frames is the list with them."""

from itertools import pairwise

import numpy as np
import pytest
from recfusion.inference.single import Answer, Ask, ItemFacts, answer

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.inference.bundle import Bundle
from recfusion.inference.filters import Rules
from recfusion.inference.name_search import NameSearch
from recfusion.inference.recommending import recommend
from recfusion.inference.reranking import Knobs
from recfusion.inference.reverse_steps import reverse_steps
from shop import shop


@pytest.fixture(scope="module")
def bundle(groups: Interactions) -> Bundle:
    return shop(groups)


def test_users_with_rules_of_their_own_are_scored_together_and_get_what_each_would_get_alone(bundle: Bundle) -> None:
    asked = [
        Ask(["i01", "i02"], 5),
        Ask(["i01"], 4, Rules(where="stock > 0"), why=2),
        Ask([], 3),
        Ask(["i11", "i12", "i11", "unknown"], 6, knobs=Knobs(adventurousness=0.8, popularity=-1)),
        Ask(["i21"], 5, Rules(include_seen=True), Knobs(diversity=0.5)),
    ]
    for ask, found in zip(asked, answer(bundle, asked), strict=True):
        wanted = recommend(bundle, ask.history, ask.k, rules=ask.rules, knobs=ask.knobs, why=ask.why).to_frame()
        assert isinstance(found, Answer)
        assert [bundle.names[place.column][0] for place in found.places] == wanted["item"].to_list()
        assert [place.score for place in found.places] == pytest.approx(wanted["score"].to_list(), rel=1e-5)
        assert found.basis == wanted["basis"][0]
        if ask.why:
            assert [[one.text for one in place.because] for place in found.places] == [
                [one["text"] for one in own] for own in wanted["because"]
            ]


def test_what_is_wrong_with_one_request_leaves_the_others_alone(bundle: Bundle) -> None:
    first, wrong, last = answer(bundle, [Ask(["i01"]), Ask(["i01"], rules=Rules(where="colour == 1")), Ask(["i02"])])
    assert isinstance(wrong, InputError)
    assert isinstance(first, Answer)
    assert isinstance(last, Answer)
    assert first == answer(bundle, [Ask(["i01"])])[0]


def test_facts_are_values_that_json_knows(bundle: Bundle) -> None:
    told = ItemFacts(bundle, hidden=("train_count",)).of(0)
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
    columns = [[dot.column for dot in step.dots] for step in steps]
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(columns))
    assert [round(10 * step.share) for step in steps[1:]] == [len(own) for own in columns[1:]]
    assert steps == reverse_steps(bundle, history, 5, seed=3)
    assert {dot.known for dot in steps[0].dots} == {True}
    assert all((dot.score is None) == dot.known for dot in steps[-1].dots)
