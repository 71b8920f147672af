"""The values of the item table as JSON values."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from recfusion.inference.bundle import COUNT, Bundle


class ItemFacts:
    """Id, name and columns of each item as JSON values, read once from the item table."""

    def __init__(self, bundle: Bundle) -> None:
        self._names = bundle.names
        columns = [name for name in bundle.items.columns if name not in ("item", COUNT)]
        self._columns = {name: json_values(bundle.items[name].to_list()) for name in columns}

    def of(self, column: int) -> dict[str, Any]:
        """Return an item's id, name and further columns."""
        item, name = self._names[column]
        return {"item": item, "name": name, "columns": {key: values[column] for key, values in self._columns.items()}}


def json_values(values: Sequence[Any]) -> list[Any]:
    """Return values of a table as JSON values: infinite numbers and NaN become None, other types become texts."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return value if np.isfinite(value) else None
        return value if value is None or isinstance(value, str | bool | int) else str(value)

    return [plain(value) for value in values]
