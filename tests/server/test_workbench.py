"""The workbench: what lists showed and led to, how many items a filter keeps, and placements with versions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recfusion.data.interactions import Interactions
from recfusion.evaluation.list_metrics import gini_index
from recfusion.inference.bundle import Bundle
from recfusion.server.config import Settings
from running import Client, running, settings_for
from shop import shop

FILE: dict[str, Any] = {"home": {"where": "stock > 0", "k": 2}}
ADMIN = {"Authorization": "Bearer the key of the admin"}


@pytest.fixture(scope="module")
def bundle(groups: Interactions) -> Bundle:
    return shop(groups)


@pytest.fixture
def settings(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("ADMIN", "the key of the admin")
    return settings_for(bundle.save(tmp_path / "shop"), admin_key_env="ADMIN", placements=FILE)


@pytest.fixture
def client(settings: Settings) -> Iterator[Client]:
    with running(settings) as found:
        yield found


def test_the_gini_coefficient_is_that_of_hand_computed_cases() -> None:
    assert gini_index(np.array([3, 3, 3])) == 0
    assert gini_index(np.array([0, 0, 0, 8])) == 0.75
    assert gini_index(np.array([1, 3])) == 0.25


def test_every_route_needs_the_admin_key(client: Client) -> None:
    asked = [("GET", "/admin/stats"), ("GET", "/admin/placements"), ("PUT", "/admin/placements")]
    asked += [("POST", "/admin/count"), ("POST", "/admin/placements/undo")]
    assert {client.ask(method, path, {}).status for method, path in asked} == {401}


def test_stats_count_lists_items_and_events_by_placement(client: Client, bundle: Bundle) -> None:
    home = [client.post("/recommend", {"history": ["i01"], "placement": "home"}).json for _ in range(3)]
    other = client.post("/recommend", {"history": ["i01"], "k": 5}).json
    sent = [("click", home[0]), ("purchase", home[1]), ("skip", other)]
    for kind, found in sent:
        event = {"user": "u", "item": found["items"][0]["item"], "kind": kind}
        assert client.post("/events", event | {"recommendation_id": found["recommendation_id"]}, ADMIN).status == 201
    stats = client.get("/admin/stats", ADMIN).json
    assert {(row["placement"], row["lists"]) for row in stats["lists"]} == {("home", 3), ("", 1)}
    assert {(row["kind"], row["events"]) for row in stats["events"]} == {("click", 1), ("purchase", 1), ("skip", 1)}
    rates = {(one["measure"], one["name"]): one["total"] for one in stats["outcomes"]["placement"]}
    assert rates["click-through", "home"] == 2
    assert rates["conversion", "home"] == 1
    assert rates["click-through", ""] == 0
    shown = {item["item"] for item in (*home[0]["items"], *other["items"])}
    assert (stats["catalogue"]["shown"], stats["catalogue"]["items"]) == (len(shown), len(bundle.items))
    assert not shown & {item["item"] for item in stats["catalogue"]["never"]}
    assert [item["item"] for item in stats["catalogue"]["hidden"]] == [other["items"][0]["item"]]
    routes = {row["route"]: row["requests"] for row in stats["latency"]}
    assert routes["/recommend"] == 4


def test_a_filter_is_counted_and_a_wrong_one_is_one_sentence(client: Client, bundle: Bundle) -> None:
    kept = client.post("/admin/count", {"where": "stock > 0"}, ADMIN).json
    assert kept == {"keeps": int((bundle.items["stock"] > 0).sum()), "of": len(bundle.items)}
    assert client.post("/admin/count", {}, ADMIN).json["keeps"] == len(bundle.items)
    wrong = client.post("/admin/count", {"where": "colour = 1"}, ADMIN)
    assert (wrong.status, wrong.json["field"]) == (422, "where")


def test_placements_are_versioned_undone_and_survive_a_restart(settings: Settings) -> None:
    with running(settings) as client:
        first = client.get("/admin/placements", ADMIN).json
        assert (first["version"], first["placements"]) == (1, FILE)
        edited = {"home": {"k": 4}, "mail": {"k": 1}}
        second = client.ask("PUT", "/admin/placements", {"placements": edited, "version": 1}, ADMIN).json
        assert second["placements"] == edited
        assert len(client.post("/recommend", {"history": ["i01"], "placement": "home"}).json["items"]) == 4
    with running(settings) as client:  # the file has not changed since
        assert client.get("/admin/placements", ADMIN).json["placements"] == edited
        third = client.post("/admin/placements/undo", {"version": 2}, ADMIN).json
        assert third["placements"] == FILE
        assert [(one["version"], one["change"]) for one in third["versions"]] == [(3, "undo"), (2, "edit"), (1, "file")]
        assert len(client.post("/recommend", {"history": ["i01"], "placement": "home"}).json["items"]) == 2
        assert client.post("/recommend", {"history": ["i01"], "placement": "mail"}).status == 422
    newer = settings.model_copy(update={"placements": {"home": {"k": 3}}})
    with running(newer) as client:
        assert client.get("/admin/placements", ADMIN).json["placements"] == {"home": {"k": 3}}


@pytest.mark.parametrize(
    ("tables", "field"),
    [({"home": {"colour": 1}}, "placements.home.colour"), ({"home": {"where": "colour = 1"}}, "where")],
)
def test_wrong_placements_are_refused_and_the_old_ones_stay(client: Client, tables: Any, field: str) -> None:
    refused = client.ask("PUT", "/admin/placements", {"placements": tables, "version": 1}, ADMIN)
    assert (refused.status, refused.json["field"]) == (422, field)
    assert client.get("/admin/placements", ADMIN).json["version"] == 1


def test_an_edit_of_an_old_version_is_a_conflict(client: Client) -> None:
    body = {"placements": {}, "version": 1}
    assert client.ask("PUT", "/admin/placements", body, ADMIN).status == 200
    assert client.ask("PUT", "/admin/placements", body, ADMIN).status == 409
    assert client.post("/admin/placements/undo", {"version": 1}, ADMIN).status == 409
