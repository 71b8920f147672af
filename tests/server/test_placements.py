"""Placements: a request names one, which sets fields of the request; keys can be limited to some."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.inference.bundle import Bundle
from recfusion.inference.recommending import recommend
from recfusion.inference.request import Filters, Reranking
from recfusion.server.keys import read_key_file
from recfusion.server.loaded_models import load_served
from recfusion.server.placements import parse_placements
from running import Client, running, settings_for
from shop import shop

HISTORY = ["i01", "i02", "i11", "i30"]
TABLES: dict[str, dict[str, Any]] = {
    "home": {"where": "stock > 0", "k": 6, "reranking": {"boost": {"price": 0.5}, "pins": {"1": "i25"}}},
    "product": {"kind": "similar", "where": "stock > 0", "model": "other"},
    "basket": {"kind": "complete", "where": "stock > 0", "n": 2},
    "mail": {"not_again_days": 7, "k": 4},
}
KEYS = {"page": "the key of the page", "basket": "the key of the basket"}


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS[name]}"}


@pytest.fixture(scope="module")
def bundle(groups: Interactions) -> Bundle:
    return shop(groups)


@pytest.fixture(scope="module")
def client(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    base = tmp_path_factory.mktemp("served")
    digests = {name: hashlib.sha256(key.encode()).hexdigest() for name, key in KEYS.items()}
    (base / "keys.toml").write_text(
        f'[page]\nsha256 = "{digests["page"]}"\nscopes = ["read"]\n'
        f'[basket]\nsha256 = "{digests["basket"]}"\nscopes = ["read", "events"]\nplacements = ["basket", "home"]\n'
    )
    folders = bundle.save(base / "shop"), bundle.save(base / "other")
    given = settings_for(folders[0], key_file=base / "keys.toml", placements=TABLES, models=(folders[1],))
    with running(given) as found:
        yield found


def test_a_placement_sets_filters_pins_and_boosts(client: Client, bundle: Bundle) -> None:
    answer = client.post("/recommend", {"history": HISTORY, "placement": "home"}, bearer("page")).json
    reranking = Reranking(boost={"price": 0.5}, pins={"1": "i25"})
    expected = recommend(bundle, HISTORY, 6, filters=Filters(where="stock > 0"), reranking=reranking).to_frame()
    assert [item["item"] for item in answer["items"]] == expected["item"].to_list()
    batch = client.post("/recommend/batch", {"requests": [{"history": HISTORY, "placement": "home"}]}, bearer("page"))
    assert batch.json["answers"][0]["items"] == answer["items"]
    decision = client.post("/explain", {"history": HISTORY, "placement": "home", "item": "i25"}, bearer("page")).json
    assert decision["decision"]["listed"] == ("i25" in expected["item"])


def test_similar_items_and_completions_have_placements_with_their_own_model(client: Client) -> None:
    similar = client.post("/similar", {"item": "i03", "placement": "product"}, bearer("page")).json
    assert similar["model"] == "other"
    assert all(item["columns"]["stock"] > 0 for item in similar["items"])
    completed = client.post("/complete", {"history": HISTORY, "placement": "basket"}, bearer("page")).json
    assert [len(one["items"]) for one in completed["alternatives"]] == [2]
    assert all(item["columns"]["stock"] > 0 for item in completed["alternatives"][0]["items"])


def test_a_placement_remembers_what_a_user_was_shown(client: Client) -> None:
    pages = [client.post("/recommend", {"user": "ann", "placement": "mail"}, bearer("page")).json for _ in range(2)]
    first, second = ({item["item"] for item in page["items"]} for page in pages)
    assert len(first) == len(second) == 4
    assert not first & second
    alone = client.post("/recommend", {"history": HISTORY, "placement": "mail"}, bearer("page"))
    assert (alone.status, "expected user" in alone.json["error"]) == (422, True)


def test_the_placements_are_listed(client: Client) -> None:
    found = client.get("/placements", bearer("page")).json["placements"]
    assert found[0] == {"name": "home", "kind": "recommend", "sets": ["k", "reranking", "where"]}
    assert [one["name"] for one in found] == list(TABLES)


def test_an_unknown_placement_lists_the_known_ones(client: Client) -> None:
    answer = client.post("/recommend", {"history": HISTORY, "placement": "hom"}, bearer("page"))
    assert (answer.status, answer.json["field"]) == (422, "placement")
    assert all(name in answer.json["error"] for name in TABLES)
    batch = client.post("/recommend/batch", {"requests": [{"history": HISTORY, "placement": "hom"}]}, bearer("page"))
    assert batch.json["field"] == "requests.0.placement"


def test_a_request_cannot_replace_what_its_placement_sets(client: Client) -> None:
    for field, value in (("where", "stock >= 0"), ("k", 3), ("reranking", {})):
        answer = client.post("/recommend", {"history": HISTORY, "placement": "home", field: value}, bearer("page"))
        assert (answer.status, answer.json["field"]) == (422, field)
    deny = client.post("/recommend", {"history": HISTORY, "placement": "home", "deny": ["i25"]}, bearer("page")).json
    assert "i25" not in [item["item"] for item in deny["items"]]


def test_a_placement_of_another_route_is_refused(client: Client) -> None:
    answer = client.post("/recommend", {"history": HISTORY, "placement": "basket"}, bearer("page"))
    assert (answer.status, answer.json["field"]) == (422, "placement")
    assert "/complete" in answer.json["error"]


def test_a_key_can_be_limited_to_placements(client: Client) -> None:
    key = bearer("basket")
    assert client.post("/complete", {"history": HISTORY, "placement": "basket"}, key).status == 200
    assert client.post("/recommend", {"history": HISTORY, "placement": "home"}, key).status == 200
    assert client.post("/events", {"user": "bob", "item": "i01"}, key).status == 201
    refused = [
        client.post("/recommend", {"history": HISTORY}, key),
        client.post("/recommend", {"user": "ann", "placement": "mail"}, key),
        client.post("/recommend/batch", {"requests": [{"history": HISTORY}]}, key),
        client.post("/similar", {"item": "i03", "placement": "product"}, key),
        client.post("/explain", {"history": HISTORY, "placement": "home", "item": "i25"}, key),
        client.post("/steps", {"history": HISTORY}, key),
        *(client.get(path, key) for path in ("/model", "/items", "/popular", "/examples", "/metrics", "/placements")),
    ]
    assert [answer.status for answer in refused] == [403] * len(refused)


def test_a_key_of_placements_has_no_admin_scope(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(f'[page]\nsha256 = "{"0" * 64}"\nscopes = ["admin"]\nplacements = ["home"]\n')
    with pytest.raises(InputError, match="no scope admin"):
        read_key_file(file)


@pytest.mark.parametrize(
    ("table", "field", "message"),
    [
        ({"kind": "basket"}, "placements.home.kind", "recommend, similar, complete"),
        ({"hwere": "stock > 0"}, "placements.home.hwere", "where"),
        ({"user": "ann"}, "placements.home.user", "at_most"),
        ({"kind": "similar", "reranking": {}}, "placements.home.reranking", "where"),
        ({"k": 0}, "k", "placement home"),
        ({"reranking": {"boost": {"margin": 3}}}, "reranking.boost.margin", "less than or equal"),
    ],
)
def test_wrong_tables_are_refused(table: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        parse_placements({"home": table})
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"where": "stok > 0"}, "home does not fit the model shop: .*stock"),
        ({"model": "newest"}, "model of the placement home.*shop"),
        ({"reranking": {"boost": {"margin": 0.3}}}, "home does not fit.*price"),
        ({"at_most": {"colour": 2}}, "home does not fit.*kind"),
    ],
)
def test_a_placement_that_does_not_fit_its_model_is_refused_at_the_start(
    bundle: Bundle, tmp_path: Path, table: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load_served(settings_for(bundle.save(tmp_path / "shop"), placements={"home": table}))


def test_a_placement_that_leaves_no_item_today_does_not_stop_the_service(bundle: Bundle, tmp_path: Path) -> None:
    load_served(settings_for(bundle.save(tmp_path / "shop"), placements={"home": {"where": "stock > 99"}}))
