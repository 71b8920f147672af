"""Placements of a shop: named settings of requests, such as those of its product page, basket or newsletter."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from recfusion.core.errors import InputError, choices, validating
from recfusion.inference.bundle import Bundle
from recfusion.inference.filters import check_columns
from recfusion.inference.lists import ListMaker
from recfusion.inference.request import Reranking
from recfusion.server.event_store import Store
from recfusion.server.schemas import Complete, Recommend, Similar

Kind = Literal["recommend", "similar", "complete"]
_SCHEMAS: dict[Kind, type[Recommend | Similar | Complete]] = {
    "recommend": Recommend,
    "similar": Similar,
    "complete": Complete,
}
_OWN = {"history": ("item",), "user": "user", "item": "item", "cursor": None, "placement": None}  # of each request
_FILE = "placements"  # name of a state: the tables of the file that was last used
Asked = TypeVar("Asked", bound=Recommend | Similar | Complete)


@dataclass(frozen=True)
class Placement:
    """A kind of request, and the fields that it sets."""

    kind: Kind
    values: Mapping[str, Any]


def placement_tag(name: str) -> str:
    """Return the part of a list's id that names its placement; zeros without one."""
    return hashlib.blake2b(name.encode(), digest_size=3).hexdigest() if name else "000000"


def parse_placements(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Placement]:
    """Return the placements of tables with `kind` and fields of a request of that kind."""
    found = {}
    for name, table in tables.items():
        kind = table.get("kind", "recommend")
        if kind not in _SCHEMAS:
            raise choices(f"kind of the placement {name}", str(kind), _SCHEMAS, f"placements.{name}.kind")
        schema = _SCHEMAS[kind]
        known = ["kind", *(field for field in schema.model_fields if field not in _OWN)]
        for key in table:
            if key not in known:
                raise choices(f"key of the placement {name}", key, known, f"placements.{name}.{key}")
        own = {field: value for field, value in _OWN.items() if field in schema.model_fields}
        set_here = {field: value for field, value in table.items() if field != "kind"}
        with validating(f"valid settings of the placement {name}", show=True):
            rule = schema.model_validate(own | set_here)
        found[name] = Placement(kind, {field: getattr(rule, field) for field in set_here})
    return found


def current_placements(store: Store, file: Mapping[str, Any] | None = None) -> tuple[dict[str, Placement], int]:
    """Return the newest version of the placements, and its number; a file that has changed since it was used counts."""
    if file is not None and _has_changed(store, file):
        return parse_placements(file), 0
    number, _, _, tables = next(iter(store.placements()), (0, 0.0, "", {}))
    return parse_placements(tables), number


def use_file(store: Store, file: Mapping[str, Any]) -> None:
    """Store the placements of a file as a new version if they have changed since they were last used."""
    if _has_changed(store, file):
        store.set_state(_FILE, json.dumps(file, sort_keys=True))
        store.set_placements(file, "file")


def _has_changed(store: Store, file: Mapping[str, Any]) -> bool:
    return json.dumps(file, sort_keys=True) != (store.state(_FILE) or "{}")


def check_placements(placements: Mapping[str, Placement], models: Mapping[str, Bundle]) -> None:
    """Raise if a placement names a model that is not served, or a column that a model's item table lacks."""
    for name, placement in placements.items():
        values = placement.values
        label = values.get("model") or next(iter(models))
        if label not in models:
            raise choices(f"model of the placement {name}", label, models, f"placements.{name}.model")
        try:
            check_columns(models[label], values.get("where"), values.get("at_most", {}))
            ListMaker.of(models[label], None, values.get("reranking", Reranking()))
        except InputError as error:
            raise InputError(f"The placement {name} does not fit the model {label}: {error}", error.field) from None


def with_placement(placements: Mapping[str, Placement], kind: Kind, request: Asked) -> Asked:
    """Return a request with the fields that its placement sets; the request may not set these itself."""
    name = request.placement
    if name is None:
        return request
    if name not in placements:
        raise choices("placement", name, placements, "placement")
    placement = placements[name]
    if placement.kind != kind:
        raise InputError(f"The placement {name} is one of /{placement.kind}: send the request there.", "placement")
    for field in sorted(placement.values.keys() & request.model_fields_set):
        raise InputError(f"The placement {name} sets {field}: leave it out of the request.", field)
    given = {field: getattr(request, field) for field in request.model_fields_set}
    return type(request)(**given, **placement.values)
