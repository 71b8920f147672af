"""Why an item is not in a list: every claim is checked with the list itself."""

from typing import Any

import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.inference.bundle import Bundle
from recfusion.inference.lists import UserList, lists_for_requests
from recfusion.inference.request import ListRequest, Reranking
from recfusion.inference.why_not import why_not
from shop import shop, with_rates

HISTORY = ("i01", "i02", "i03")


@pytest.fixture(scope="module")
def bundle(groups: Interactions) -> Bundle:
    return shop(groups)


def ids(bundle: Bundle, **fields: Any) -> list[str]:
    found = lists_for_requests(bundle, [ListRequest(**{"history": HISTORY, **fields})])[0]
    assert isinstance(found, UserList)
    return [bundle.names[column][0] for column in found.items]


def test_the_rank_of_every_item_is_its_place_in_the_whole_list(bundle: Bundle) -> None:
    for weights in (Reranking(), Reranking(popularity=-1.0)):
        every = ids(bundle, k=40, reranking=weights)
        request = ListRequest(history=HISTORY, k=5, reranking=weights)
        for rank, item in enumerate(every, 1):
            found = why_not(bundle, item, request)
            assert (found.rank, found.listed, found.excluded_by) == (rank, rank <= 5, [])
            assert (found.remedies == []) == found.listed


@pytest.mark.parametrize(
    ("item", "fields", "excluded"),
    [
        ("i01", {}, ["again"]),
        ("i05", {"deny": ["i05"]}, ["deny"]),
        ("i05", {"allow": ["i06", "i07"], "where": "kind == 'Cups'"}, ["where", "allow"]),
        ("i30", {"where": "kind == 'Tea'"}, ["where"]),
    ],
)
def test_filters_that_exclude_an_item_are_named(
    bundle: Bundle, item: str, fields: dict[str, Any], excluded: list[str]
) -> None:
    bundle = with_rates(bundle)
    found = why_not(bundle, item, ListRequest(history=HISTORY, k=40, **fields))
    assert (found.rank, found.listed, found.excluded_by) == (None, False, excluded)
    [remedy] = found.remedies
    more: dict[str, Any] = {"again": "allowed"} if excluded == ["again"] else {}
    assert ids(bundle, k=40, **more)[remedy.rank - 1] == item


def test_remedies_do_what_they_say(bundle: Bundle) -> None:
    item = ids(bundle, k=40)[30]
    found = why_not(bundle, item, ListRequest(history=HISTORY, k=5, reranking=Reranking(popularity=0.2)))
    assert found.rank is not None
    fields = {remedy.field for remedy in found.remedies}
    assert {"k", "history"} <= fields
    for remedy in found.remedies:
        changed: dict[str, Any] = {"k": 40, "reranking": Reranking(popularity=0.2)}
        if remedy.field == "reranking":
            changed["reranking"] = Reranking()
        longer = [*HISTORY, *remedy.items]
        assert ids(bundle, **changed | {"history": longer})[remedy.rank - 1] == item
        assert remedy.field != "history" or 2 * remedy.rank <= found.rank


def test_reasons_for_and_against_add_up_to_the_score(bundle: Bundle) -> None:
    item = ids(bundle, k=40)[-1]
    found = why_not(bundle, item, ListRequest(history=HISTORY))
    weights = bundle.model.weights_  # type: ignore[attr-defined]
    column, *rows = bundle.columns_of([item, *HISTORY]).tolist()
    shown = sum(reason.weight for reason in (*found.supporting, *found.opposing))
    assert shown == pytest.approx(float(weights[rows, column].sum()), abs=1e-6)
    assert all(reason.weight > 0 for reason in found.supporting)
    assert all(reason.weight < 0 for reason in found.opposing)
    avoided = why_not(bundle, item, ListRequest(history=HISTORY, reranking=Reranking(wish={"kind": {"Tea": 1.0}})))
    assert any(reason.text == "kind: Tea" for reason in (*avoided.opposing, *avoided.supporting))


def test_a_limit_per_category_is_named(bundle: Bundle) -> None:
    plain = ids(bundle, k=10)
    request = ListRequest(history=HISTORY, k=10, at_most={"kind": 1})
    limited = ids(bundle, k=10, at_most={"kind": 1})
    item = next(item for item in plain if item not in limited)
    found = why_not(bundle, item, request)
    assert found.excluded_by == ["at_most"]
    assert found.remedies[0].rank == plain.index(item) + 1


def test_an_unknown_item_is_an_error_and_an_empty_history_has_a_rank(bundle: Bundle) -> None:
    with pytest.raises(InputError, match="knows no item 'nothing'"):
        why_not(bundle, "nothing", ListRequest(history=HISTORY))
    found = why_not(bundle, "i30", ListRequest(history=()))
    assert found.rank is not None
    assert ids(bundle, history=(), k=40)[found.rank - 1] == "i30"


def test_a_model_without_similar_items_has_no_items_to_add(groups: Interactions) -> None:
    popular = shop(groups, "popularity")
    item = ids(popular, k=40)[-1]
    found = why_not(popular, item, ListRequest(history=HISTORY, k=5))
    assert [remedy.field for remedy in found.remedies] == ["k"]
