"""The file of a shop's nightly run: which data it takes, what it trains, and where the results go."""

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from recfusion.core.errors import InputError
from recfusion.core.files import read_toml
from recfusion.data.options import Preparation, Source, SplitPlan
from recfusion.data.reading.database import FILE_SCHEMES, is_database
from recfusion.data.reading.id_lines import read_id_lines
from recfusion.data.signals import AUTO, parse_signals
from recfusion.experiments.candidate import Candidate
from recfusion.experiments.experiment_file import refusal
from recfusion.experiments.preset import Preset
from recfusion.models.registry import DEFAULT_MODEL, find
from recfusion.server.config import ShopOptions, in_folder
from recfusion.server.placements import parse_placements

_OWN_KEYS = {"data": "orders", "items": "products", "users_file": "customers"}  # of [source], and our key for it
PLACES = {"folder", *_OWN_KEYS.values(), "events", "forget", "reports"}
SERVED = {"name", "serve", "placements"}  # keys that only the service reads


class Shop(BaseModel, frozen=True, extra="forbid"):
    """The keys of the file; paths are relative to its folder."""

    folder: str = Field(description="model folder, which the service serves and the run replaces")
    orders: str | tuple[str, ...] = Field(
        description="file of orders, or a list of files; `*` matches several; or the address of a database, with "
        "`query` in [source]"
    )
    products: str | None = Field(None, description="file about the products, with titles, stock and features")
    customers: str | None = Field(None, description="file about the customers, for their features")
    events: str | None = Field(None, description="SQLite file in which the service stores events")
    forget: str | None = Field(None, description="file of customers to forget, one id in each line")
    reports: str = Field("reports", description="folder for the reports")
    model: str = Field(DEFAULT_MODEL, description="model of the new recipe, or file.py:Class")
    settings: dict[str, Any] = Field({}, description="table of its settings")
    signals: str = Field(
        AUTO, description='signals of the new recipe; preset = "shop" uses all signals that the model reads'
    )
    preset: Preset = Field("shop", description="shop: minimum counts of 1 and 2; none: the defaults of `train`")
    preparation: Preparation = Field(Preparation(), description="table of choices that replace those of the preset")
    source: Source = Field(Source(), description="table of columns and other options for reading the orders")
    split: SplitPlan | None = Field(
        None,
        description="table of options for the split into training and test; by default per-user temporal if times are "
        "used",
    )
    histories: bool = Field(True, description="whether the model may hold histories of customers")
    seed: int = Field(0, ge=0, description="seed of the split and of the model")
    max_drop: float = Field(
        0.2, ge=0, le=1, description="refuse data with fewer rows, customers or products than this share below the last"
    )
    service: str | None = Field(None, description="address of the service to reload, such as http://127.0.0.1:8000")
    admin_key_env: str | None = Field(None, description="environment variable with the admin key of the service")
    name: str = Field(
        "",
        pattern=r"^[a-z0-9_-]{0,40}$",
        description="name of the shop in a service of several shops; that of the file",
    )
    serve: ShopOptions = Field(ShopOptions(), description="table of options of `recfusion serve` for this shop")
    placements: dict[str, dict[str, Any]] = Field(
        {}, description="tables of placements, with a kind and fields of requests"
    )

    def candidate(self) -> Candidate:
        """Return the model of the new recipe."""
        entry = find(self.model)
        return Candidate(entry.name, entry, entry.make(self.settings, text=False))

    def whole_source(self) -> Source:
        """Return the source of all files of orders; raise if there is none."""
        patterns = ",".join((self.orders,) if isinstance(self.orders, str) else self.orders)
        if not patterns:
            raise InputError("Expected a file of orders, got none: name it under orders.", "orders")
        found = {"data": patterns, "items": self.products, "users_file": self.customers}
        source = self.source.model_copy(update=found)
        for file in () if is_database(source.data) else source.files:
            if not Path(file).exists():
                raise InputError(f"Expected a file of orders at '{file}', got nothing: correct orders.", "orders")
        return source

    def forgotten(self) -> list[str]:
        """Return the ids of the customers to forget."""
        if self.forget is None:
            return []
        return read_id_lines(Path(self.forget), "forget")


def read_shop(path: Path) -> Shop:
    """Read and check the file of a shop; its paths become absolute."""
    document, folder = read_toml(path), path.absolute().parent
    preparation = document.get("preparation")
    if isinstance(preparation, dict) and preparation.get("min_rating") == "none":  # TOML has no null
        document["preparation"] = preparation | {"min_rating": None}
    try:
        shop = Shop.model_validate(document)
    except ValidationError as error:
        raise refusal(str(path), error, Shop) from None
    try:
        for key in sorted(_OWN_KEYS.keys() & shop.source.model_fields_set):
            raise InputError(f"[source] {key} is not used: name the file under {_OWN_KEYS[key]}.", key)
        if any(map(is_database, shop.orders if isinstance(shop.orders, tuple) else ())):
            raise InputError("Expected one database or a list of files, got a list with a database.", "orders")
        if shop.service is not None and not re.match(r"https?://[^/\s]+/?$", shop.service):
            raise InputError(
                f"Expected an address such as http://127.0.0.1:8000 under service, got '{shop.service}'.", "service"
            )
        if "events" in shop.serve.model_fields_set:
            raise InputError("[serve] events is not used: name the file under events.", "events")
        parse_placements(shop.placements)
        parse_signals(shop.signals)
        shop.candidate()
    except InputError as error:
        raise InputError(f"In '{path}': {error}", error.field) from None
    named = {name: value for name in PLACES if (value := getattr(shop, name)) is not None}
    placed = {name: _placed(value, folder) for name, value in named.items()}
    options = {name: in_folder(getattr(shop.serve, name), folder) for name in shop.serve.model_fields_set}
    return shop.model_copy(update=placed | {"serve": ShopOptions.model_validate(options)})


def _placed(name: Any, folder: Path) -> Any:
    """Return a path in the folder of the file, or several; the address of a server stays as it is."""
    if isinstance(name, tuple):
        return tuple(_placed(one, folder) for one in name)
    if not is_database(name):
        return str(folder / name)
    scheme, _, path = name.partition(":///")
    return f"{scheme}:///{folder / path}" if scheme in FILE_SCHEMES and path else name
