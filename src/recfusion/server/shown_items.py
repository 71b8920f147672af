"""What a user was shown before: further pages, repeats that fade, and items that are not shown again for some days."""

from collections.abc import Mapping
from typing import Any

from recfusion.server.schemas import Recommend

Shown = Mapping[str, tuple[float, int]]  # item: when it was last shown, and in how many lists
_DAY = 86400.0


def hidden_items(request: Recommend, shown: Shown, now: float) -> tuple[str, ...]:
    """Return the items that a request leaves out: those of earlier pages, and those shown in the last days."""
    page = float("inf") if request.cursor is None else int(request.cursor, 16) / 1000
    days = float("inf") if request.not_again_days is None else now - _DAY * request.not_again_days
    return tuple(item for item, (when, _) in shown.items() if when >= min(page, days))


def fade_repeats(
    items: list[dict[str, Any]], shown: Shown, fade: float, k: int, pins: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the first K items after each one shown n times moved from rank r to the place of r * (1 + fade * n).

    Pinned items stay at their places.
    """

    def place(item: dict[str, Any]) -> float:
        return float(item["rank"] * (1 + fade * shown.get(item["item"], (0.0, 0))[1]))

    pinned = [item for item in items if pins.get(str(item["rank"])) == item["item"]]
    moved = sorted((item for item in items if item not in pinned), key=place)
    for item in pinned:
        moved.insert(item["rank"] - 1, item)
    return [item | {"rank": rank} for rank, item in enumerate(moved[:k], 1)]


def next_cursor(request: Recommend, now: float) -> str:
    """Return the cursor of the next page: the time of the first page in milliseconds, as a hexadecimal number."""
    return request.cursor or f"{int(1000 * now):x}"
