"""The tables of a result document: beside the paper's numbers, each metric with intervals and tests, and the costs."""

from collections.abc import Mapping, Sequence
from typing import Any

from recfusion.report.document import Document, chosen_text, metric_names, n_splits, ranked
from recfusion.report.formats import NONE, Cell, Column, Table, csv_text, latex, markdown


def paper_table(document: Document) -> Table | None:
    """Return the pendant of the paper's table: paper, ours and difference for each metric; None without a paper."""
    paper = document.get("paper")
    if not paper:
        return None
    metrics = [
        metric for metric in metric_names(document["models"]) if any(metric in of for of in paper["models"].values())
    ]
    columns = [Column("model"), Column("splits")]
    for metric in metrics:
        columns += [Column(f"{metric} paper"), Column("ours"), Column("difference", signed=True)]
    rows = []
    for name in ranked(document["models"]):
        entry = document["models"][name]
        cells: list[Cell] = [name, n_splits(entry)]
        for metric in metrics:
            theirs = paper["models"].get(name, {}).get(metric)
            ours = _median(entry, metric)
            both = theirs is not None and ours is not None
            cells += [_percent(theirs), _percent(ours), _percent(ours - theirs) if both else None]
        rows.append(tuple(cells))
    note = (
        f"Percent points. Paper: {paper['title']}. Ours: the median over the splits of each split's mean; "
        "difference: ours less the paper's."
    )
    return Table("Paper and ours", tuple(columns), tuple(rows), note)


def metric_table(document: Document, metric: str) -> Table:
    """Return one metric with its intervals, and the paired tests against the best model and against the reference."""
    tests = {test["b"]: test for test in document.get("tests") or () if test["metric"] == metric}
    against = {test["a"]: test for test in document.get("reference_tests") or () if test["metric"] == metric}
    best = next((test["a"] for test in tests.values()), None)
    reference = next((test["b"] for test in against.values()), None)
    columns = [Column("model"), Column("splits"), Column("median"), Column("mean"), Column("95 % interval")]
    if best:
        columns += [
            Column("less the best", signed=True),
            Column("interval (best)", signed=True),
            Column("p (best)", digits=4, positive=True),
        ]
    if reference:
        columns += [
            Column(f"less {reference}", signed=True),
            Column(f"interval ({reference})", signed=True),
            Column(f"p ({reference})", digits=4, positive=True),
        ]
    rows = []
    for name in ranked(document["models"], metric):
        entry = document["models"][name]
        summary = entry.get(metric) or {}
        cells: list[Cell] = [name, n_splits(entry), _percent(summary.get("median")), _percent(summary.get("mean"))]
        cells.append(_interval(summary.get("ci95")))
        if best:
            cells += _difference(tests.get(name), sign=-1)
        if reference:
            cells += _difference(against.get(name), sign=1)
        rows.append(tuple(cells))
    note = "Percent points; 95 % intervals by a bootstrap over users."
    if best or reference:
        note += " Differences are paired over the splits that both models have; p with Holm's correction."
    return Table(metric, tuple(columns), tuple(rows), note)


def cost_table(document: Document) -> Table:
    """Return what each model costs, and the settings that its fits chose."""
    columns = (
        *(Column("model"), Column("parameters"), Column("epochs", digits=1), Column("fit s"), Column("score s")),
        Column("chosen on the validation users"),
    )
    rows = []
    for name in ranked(document["models"]):
        entry = document["models"][name]
        epochs = entry.get("epochs") or None
        costs = (entry.get("parameters"), epochs, entry.get("fit_seconds"), entry.get("score_seconds"))
        rows.append((name, *costs, chosen_text(entry)))
    return Table("Cost", columns, tuple(rows), f"Seconds and epochs are means over the splits.{_total_text(document)}")


def result_tables(document: Document) -> list[Table]:
    """Return all tables of a document: the paper's pendant where there is one, one for each metric, and the costs."""
    beside = paper_table(document)
    metrics = [metric_table(document, metric) for metric in reversed(metric_names(document["models"]))]
    return [*([beside] if beside else []), *metrics, cost_table(document)]


def results_markdown(document: Document) -> str:
    """Return the tables of a document as Markdown, below its title and its protocol."""
    protocol = document.get("protocol") or {}
    counts = [
        f"{protocol[what]:,} {what}" for what in ("users", "items", "interactions") if protocol.get(what) is not None
    ]
    name = protocol.get("name") or "unnamed data"
    told = f"Data: {name}" + (f" ({', '.join(counts)})" if counts else "")
    seeds = document.get("seeds") or ()
    lines = [
        *(f"# {document.get('title') or f'Results on {name}'}", ""),
        *([f"**{document['note']}**", ""] if document.get("note") else []),
        f"{told}; protocol {protocol.get('hash') or NONE}; seeds {', '.join(map(str, seeds)) or NONE}.",
        "",
        *(f"- {sentence}" for sentence in protocol.get("assumptions") or ()),
        "",
    ]
    return "\n".join(lines) + "\n" + "\n".join(markdown(table) for table in result_tables(document))


def results_latex(document: Document) -> str:
    """Return the tables of a document as LaTeX."""
    return "\n".join(latex(table) for table in result_tables(document))


def results_csv(document: Document) -> str:
    """Return the tables of the metrics as one CSV, the paper's values in a column of their own."""
    paper = (document.get("paper") or {}).get("models", {})
    tables = []
    for metric in metric_names(document["models"]):
        table = metric_table(document, metric)
        rows = [(*row, _percent(paper.get(str(row[0]), {}).get(metric))) for row in table.rows]
        tables.append(Table(table.title, (*table.columns, Column("paper")), tuple(rows)))
    return csv_text(tables)


_UNITS = (("hours", 3600), ("minutes", 60))


def _total_text(document: Document) -> str:
    """Return the sentence that says how long all fits took, where every model's is known."""
    entries = document["models"].values()
    known = [
        (n, each) for entry in entries if (n := n_splits(entry)) and (each := entry.get("fit_seconds")) is not None
    ]
    if len(known) < len(entries):
        return ""
    total = sum(n * each for n, each in known)
    unit, length = next(((unit, length) for unit, length in _UNITS if total >= length), ("seconds", 1))
    shown = f"{total / length:.1f} {unit}"
    return f" The times of all {sum(n for n, _ in known):,} fits add up to {shown}."


def _difference(test: Mapping[str, Any] | None, *, sign: int) -> list[Cell]:
    if test is None:
        return [None, None, None]
    low, high = sorted(sign * end for end in test["ci95"])
    return [100 * sign * test["difference"], (100 * low, 100 * high), float(test["p_holm"])]


def _median(entry: Mapping[str, Any], metric: str) -> float | None:
    summary = entry.get(metric) or {}
    return summary.get("median", summary.get("mean"))


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _interval(ends: Sequence[float] | None) -> tuple[float, float] | None:
    return None if ends is None else (100 * ends[0], 100 * ends[1])
