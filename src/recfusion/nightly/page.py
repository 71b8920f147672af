"""The page of a night: one self-contained HTML file."""

from collections.abc import Sequence

from markupsafe import Markup

from recfusion.nightly.report import Counts, Night
from recfusion.report import svg
from recfusion.report.page import template

_SHOWN = 30  # nights
_TITLES = {
    "first": "The first model",
    "new": "The new recipe is used",
    "old": "The old recipe stays, on new data",
    "refused": "Refused: far less data",
}
_RECIPES = ("recipe", "model", "signals", "least products, customers", "learned from customers", "knows products")
_NIGHTS = ("night", "outcome", "customers", "products", "events", "seconds")
Rows = list[tuple[str, ...]]  # of a table, the names of the columns first


def render(nights: Sequence[Night]) -> str:
    """Return the page of the last of some nights, with a table of those before it."""
    night, recent = nights[-1], nights[-_SHOWN:]
    metric = next((one.comparison["metric"] for one in reversed(recent) if one.comparison), "metric")
    users = night.comparison.get("test_users", 0)
    same = f"{metric} x 100 of the same {users:,} test customers; unknown products are misses"
    used = f"{metric} x 100 of the used recipe; test customers differ from night to night"
    tables = (
        ("recipes", "Recipes", same, _recipes(night, metric)),
        ("data", "Data", "", _sizes(night.before, night.counts)),
        ("nights", "Last nights", used, _history(recent, metric)),
    )
    facts = {"model": night.model, "customers": night.users, "products": night.items, "events": night.events}
    facts |= {"forgotten customers": night.forgotten, "service": night.service, "seconds": f"{night.seconds:.1f}"}
    chart = _chart([one for one in recent if one.mean is not None])
    page = template("night.html.jinja")
    return page.render(night=night, title=_TITLES[night.outcome], facts=facts, tables=tables, chart=chart)


def _recipes(night: Night, metric: str) -> Rows:
    rows: Rows = [(*_RECIPES, metric)]
    for name in ("new", "old"):
        if one := night.comparison.get(name):
            used = " (used)" if name == night.used else ""
            least = f"{one['preparation']['min_items_per_user']}, {one['preparation']['min_users_per_item']}"
            learned = (f"{one['users']:,}", f"{one['items']:,}", f"{100 * one['mean']:.2f}")
            rows.append((f"{name}{used}", one["model"], one["signals"], least, *learned))
    if (popular := night.comparison.get("bestsellers")) is not None:
        rows.append(("bestsellers", "popularity", "", "", "", "", f"{100 * popular:.2f}"))
    return rows


def _sizes(before: Counts | None, now: Counts) -> Rows:
    """Return the counts of the last night and this one, with their change."""
    rows: Rows = [("", "last night", "this night", "change")]
    for name, number in now.model_dump().items():
        last = None if before is None else getattr(before, name)
        change = ("", "") if last is None else (f"{last:,}", f"{number - last:+,} ({number / last - 1:+.1%})")
        rows.append((name, change[0], f"{number:,}", change[1]))
    return rows


def _history(nights: Sequence[Night], metric: str) -> Rows:
    rows: Rows = [(*_NIGHTS, metric, "service")]
    for one in reversed(nights):
        mean = "" if one.mean is None else f"{100 * one.mean:.2f}"
        numbers = (f"{one.counts.customers:,}", f"{one.counts.products:,}", f"{one.events:,}", f"{one.seconds:.1f}")
        rows.append((f"{one.started:%Y-%m-%d %H:%M}", one.outcome, *numbers, mean, one.service))
    return rows


def _chart(nights: Sequence[Night]) -> Markup | None:
    """Return a line of the metric over the nights; None for a single night."""
    if len(nights) < 2:
        return None
    values = [100 * (one.mean or 0.0) for one in nights]
    low, high = min(values), max(values)
    room = max(high - low, 0.1 * high, 0.01)
    across, up = svg.Scale(0, len(values) - 1, 44, 610), svg.Scale(low - room / 2, high + room / 2, 150, 12)
    hints = [f"{one.started:%Y-%m-%d}: {value:.2f}" for one, value in zip(nights, values, strict=True)]
    root = svg.chart(640, 178, "nights-chart", "The metric of the last nights", hints)
    for tick in up.ticks(34):
        svg.line(root, "grid", [(44, up(tick)), (610, up(tick))])
        svg.text(root, "tick", 38, up(tick), f"{tick:.4g}", "end")
    row = svg.group(root, "row best", "; ".join(hints))
    svg.line(row, "interval", [(across(place), up(value)) for place, value in enumerate(values)])
    for place, (one, value) in enumerate(zip(nights, values, strict=True)):
        kind = "open" if one.outcome == "old" else "best"
        svg.dot(svg.group(row, kind, hints[place]), "dot", across(place), up(value))
    for place in (0, len(values) - 1):
        svg.text(root, "tick", across(place), 168, f"{nights[place].started:%Y-%m-%d}", "middle")
    return svg.markup(root)
