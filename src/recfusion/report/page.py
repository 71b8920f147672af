"""The page of a result document: one HTML file that needs nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from recfusion.core.errors import InputError
from recfusion.core.files import replacing
from recfusion.report.again import FILE, experiment_toml
from recfusion.report.charts import BOX_PLOT_FROM, Mark, Point, Row, dot_plot, reach, scatter
from recfusion.report.document import chosen_text, is_descriptive, main_metric, mean_of, metric_names, n_splits, ranked
from recfusion.report.formats import NONE
from recfusion.report.sections import curve_panels, example_lists, slice_tables
from recfusion.report.tables import metric_table, paper_table

LEVEL = 0.05  # a corrected p at or above it is noise
MEANING = {
    "calibrated_recall": "held-out items found in the first {k}, of as many as could be",
    "recall": "share of the held-out items found in the first {k}",
    "precision": "share of the first {k} that are held-out items",
    "hit_rate": "share of users with a hit in the first {k}",
    "ndcg": "hits in the first {k}, discounted by rank; the ideal order has 100",
    "mrr": "one over the rank of the first hit in the first {k}",
    "map": "precision at the rank of each hit in the first {k}, averaged",
    "popularity": "share of training users who have the items recommended: describes the lists, not their accuracy",
    "coverage": "share of all items recommended to somebody: describes the lists, not their accuracy",
}
_CARD: Mapping[str, Any] = {
    **dict.fromkeys(("name", "hash", "fingerprint", "licence", "citation"), ""),
    **dict.fromkeys(("users", "items", "interactions")),
    "steps": (),
    "assumptions": (),
}
_MODEL: Mapping[str, Any] = dict.fromkeys(("title", "settings", "parameters", "fit_seconds", "score_seconds"))


@dataclass(frozen=True)
class Cell:
    """A metric of a model as the table shows it."""

    value: float | None = None
    text: str = NONE
    interval: str = ""
    mark: Mark = ""


def write_page(document: Mapping[str, Any], path: str | Path) -> Path:
    """Write the page of a result document to `path`, and return the path."""
    page = render(document)
    with replacing(Path(path)) as beside:
        beside.write_text(page, encoding="utf-8")
    return Path(path)


def render(document: Mapping[str, Any]) -> str:
    """Return the page of a result document as HTML."""
    models: Mapping[str, Mapping[str, Any]] = document.get("models") or {}
    metrics = metric_names(models)
    if not metrics:
        raise InputError("Expected a result document with a model and a metric, got one without: compare models first.")
    tests: Sequence[Mapping[str, Any]] = document.get("tests") or ()
    main = main_metric(models)
    metrics.sort(key=lambda metric: metric != main)  # what models are ranked by stands first, on a phone too
    cells = {metric: _cells(models, metric, tests) for metric in metrics}
    order = ranked(models)
    splits_of = {name: n_splits(models[name]) or 1 for name in order}
    environment = Environment(
        loader=PackageLoader("recfusion.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"breakable": _breakable, "count": _count, "seconds": _seconds}
    protocol = {**_CARD, **document.get("protocol", {})}
    return environment.get_template("report.html.jinja").render(
        protocol=protocol,
        read={"missing": 0, "unparsable": 0, "notes": (), **protocol.get("read", {})},
        seeds=document.get("seeds") or (),
        finding=finding(models, tests, main),
        metrics=metrics,
        main=main,
        descriptive=[metric for metric in metrics if is_descriptive(metric)],
        models={name: {**_MODEL, **models[name], "chosen_text": chosen_text(models[name])} for name in order},
        splits_of=splits_of,
        unequal=len(set(splits_of.values())) > 1,
        cells=cells,
        has_marks=any(cell.mark for of_metric in cells.values() for cell in of_metric.values()),
        tested=bool(tests),
        charts=_dot_plots(models, cells),
        n_splits=max(splits_of.values()),
        box_plot_from=BOX_PLOT_FROM,
        costs=_scatters(models, cells[main], main),
        details=[metric_table(document, metric) for metric in metrics if any(t["metric"] == metric for t in tests)],
        paper=paper_table(document),
        slices=slice_tables(document, order, main),
        curves=curve_panels(document, order),
        examples=example_lists(document, order),
        note=document.get("note"),
        experiment=experiment_toml(document),
        experiment_file=FILE,
        command=document.get("command"),
        versions=document.get("versions") or {},
    )


def finding(models: Mapping[str, Any], tests: Sequence[Mapping[str, Any]], metric: str) -> tuple[str, str]:
    """Return the best model by `metric`, and the rest of the sentence that says so, with how sure it is."""
    means = {name: mean for name, entry in models.items() if (mean := mean_of(entry.get(metric))) is not None}
    best = _best(means, tests, metric)
    others = sorted(means.keys() - {best}, key=lambda name: (-means[name], name))
    digits, interval = _digits(means.values()), models[best][metric].get("ci95")
    value = _points(means[best], digits) + (
        f" (95\u00a0% interval {_range(interval, '–', digits)})" if interval else ""
    )
    if not others:
        return best, f" reaches {value} by {metric}. No other model was compared with it."
    against = {other: test for other in others if (test := _test(tests, metric, best, other)) is not None}
    close = [other for other, test in against.items() if _within_noise(test)]
    other = (close or others)[0]
    lead = against[other]["difference"] if other in against else means[best] - means[other]
    points = f"{_points(lead, 1 if lead >= 0.01 else 2)} points"
    if close and lead == 0:
        return best, f" has the highest {metric}, {value}, but so has {other}."
    if close:
        test = against[other]
        more = f", and so are those over {len(close) - 1} more" if len(close) > 1 else ""
        sure = f"95\u00a0% interval of the difference {_range(test['ci95'], ' to ', 2)}, {_p(test['p_holm'])}"
        noise = f"but its lead of {points} over {other} is within the noise ({sure}){more}."
        return best, f" has the highest {metric}, {value}, {noise}"
    start = f" has the highest {metric}" if is_descriptive(metric) else f" is best by {metric}"
    sure = f" ({_p(against[other]['p_holm'])})" if other in against else "; the difference was not tested"
    return best, f"{start}: {value}, {points} ahead of {other}{sure}."


def _cells(models: Mapping[str, Any], metric: str, tests: Sequence[Mapping[str, Any]]) -> dict[str, Cell]:
    """Return the cells of one metric's column, the best and those not told apart from it marked."""
    means = {name: mean for name, entry in models.items() if (mean := mean_of(entry.get(metric))) is not None}
    best = _best(means, tests, metric) if len(means) > 1 and not is_descriptive(metric) else None
    digits = _digits(means.values())
    cells = {}
    for name, entry in models.items():
        if name not in means:
            cells[name] = Cell()
            continue
        test = _test(tests, metric, best, name)
        mark: Mark = "best" if name == best else "same" if test is not None and _within_noise(test) else ""
        interval = entry[metric].get("ci95")
        shown = _range(interval, "–", digits) if interval else ""
        cells[name] = Cell(100 * means[name], _points(means[name], digits), shown, mark)
    return cells


def _dot_plots(models: Mapping[str, Any], cells: Mapping[str, Mapping[str, Cell]]) -> list[dict[str, Any]]:
    """Return the chart of each metric; measures of accuracy share a scale unless it would flatten them."""
    rows = {
        metric: [_row(name, models[name][metric], cell) for name, cell in column.items() if cell.value is not None]
        for metric, column in cells.items()
    }
    shared = max((reach(rows[metric]) for metric in rows if not is_descriptive(metric)), default=0.0)
    found = []
    for number, (metric, its_rows) in enumerate(rows.items()):
        own = is_descriptive(metric) or reach(its_rows) < shared / 3
        chart = dot_plot(its_rows, ident=f"metric-{number}", title=metric, top=reach(its_rows) if own else shared)
        found.append({"metric": metric, "meaning": _meaning(metric), "own_scale": own, "svg": chart})
    return found


def _row(name: str, summary: Mapping[str, Any], cell: Cell) -> Row:
    interval, iqr, median = summary.get("ci95"), summary.get("iqr"), summary.get("median")
    return Row(
        name=name,
        mean=100 * summary["mean"],
        text=cell.text,
        interval=(100 * interval[0], 100 * interval[1]) if interval else None,
        median=None if median is None else 100 * median,
        iqr=(100 * iqr[0], 100 * iqr[1]) if iqr else None,
        splits=tuple(100 * value for value in summary.get("splits") or ()),
        mark=cell.mark,
    )


def _scatters(models: Mapping[str, Any], column: Mapping[str, Cell], metric: str) -> list[dict[str, Any]]:
    """Return the charts of accuracy against what it costs: seconds to fit, and parameters."""
    charts = []
    for key, what, seconds in (("fit_seconds", "fit time", True), ("parameters", "parameters", False)):
        known = {
            name: cell for name, cell in column.items() if cell.value is not None and models[name].get(key) is not None
        }
        points = []
        for name, cell in known.items():
            row, cost = _row(name, models[name][metric], cell), float(models[name][key])
            said = f"{_seconds(cost)} s to fit" if seconds else f"{_count(int(cost))} parameters"
            points.append(Point(name, cost, row.mean, f"{name}: {cell.text}, {said}", row.interval, cell.mark))
        if points:
            title = f"{metric} against {what}"
            svg = scatter(points, ident=key, title=title, y_name=metric, x_name=f"{what}, log scale", seconds=seconds)
            zeros = [point.name for point in points if point.x <= 0]
            charts.append({"what": what, "svg": svg, "zeros": zeros, "missing": [n for n in column if n not in known]})
    return charts


def _best(means: Mapping[str, float], tests: Sequence[Mapping[str, Any]], metric: str) -> str:
    """Return the model that the others were tested against, without tests the one with the highest mean."""
    tested = (test["a"] for test in tests if test["metric"] == metric and test["a"] in means)
    return next(tested, max(means, key=means.__getitem__))


def _test(tests: Sequence[Mapping[str, Any]], metric: str, best: str | None, other: str) -> Mapping[str, Any] | None:
    return next((test for test in tests if test["metric"] == metric and (test["a"], test["b"]) == (best, other)), None)


def _within_noise(test: Mapping[str, Any]) -> bool:
    low, high = test["ci95"]
    return bool(test["p_holm"] >= LEVEL or low <= 0 <= high)


def _meaning(metric: str) -> str:
    kind, _, k = metric.partition("@")
    return MEANING.get(kind, "").format(k=k)


def _digits(values: Any) -> int:
    """Return the decimals of a column: one, or two where all its values are below 10 points."""
    return 1 if max(values, default=0.0) >= 0.1 else 2


def _points(value: float, digits: int) -> str:
    return f"{100 * value:.{digits}f}".replace("-", "−")


def _range(interval: Sequence[float], to: str, digits: int) -> str:
    return to.join(_points(end, digits) for end in interval)


def _p(value: float) -> str:
    if value < 0.001:
        return "p\u00a0<\u00a0.001"
    if value > 0.99:
        return "p\u00a0>\u00a0.99"
    return f"p\u00a0=\u00a0{value:.{3 if value < 0.1 else 2}f}".replace("0.", ".", 1)


def _count(number: int | None) -> str:
    return NONE if number is None else f"{number:,}"


def _seconds(value: float | None) -> str:
    if value is None:
        return NONE
    return "<0.01" if value < 0.01 else f"{value:,.{2 if value < 1000 else 0}f}"


def _breakable(name: object) -> Markup:
    """Return `name` escaped, with places where a line may break."""
    text = str(escape(name))
    return Markup(text.replace("_", "_<wbr>"))
