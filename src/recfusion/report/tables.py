"""The tables of a comparison: beside the paper's numbers, each metric with intervals and tests, and the costs."""

from collections.abc import Mapping, Sequence
from typing import Any

from recfusion.experiments.comparison import Comparison
from recfusion.experiments.comparison_parts import ModelSummary
from recfusion.experiments.paired_tests import PairedTest
from recfusion.report.formats import Cell, Column, Table, csv_text, latex, markdown, p_cell


def paper_table(comparison: Comparison) -> Table | None:
    """Return paper, ours and difference for each metric of the models that the paper has; None where it has none."""
    paper = comparison.paper
    if paper is None:
        return None
    metrics = [m for m in comparison.metrics if any(m in values for values in paper.models.values())]
    columns = [Column("model"), Column("splits")]
    for metric in metrics:
        columns += [Column(f"{metric} paper"), Column("ours"), Column("difference", signed=True)]
    rows = []
    for model in _ranked(comparison):
        if model.label in paper.models:
            cells: list[Cell] = [model.label, len(model.seeds)]
            for metric in metrics:
                theirs, ours = 100 * paper.models[model.label][metric], 100 * model.metrics[metric].median
                cells += [theirs, ours, ours - theirs]
            rows.append(tuple(cells))
    note = (
        f"Percent points. Paper: {paper.title}. Ours: the median over the splits of each split's mean; "
        "difference: ours minus the paper's."
    )
    return Table("Paper and ours", tuple(columns), tuple(rows), note)


def metric_table(comparison: Comparison, metric: str) -> Table:
    """Return one metric with its intervals, and the paired tests against the best model and against the reference."""
    best = {test.b: test for test in comparison.tests if test.metric == metric}
    reference = {test.a: test for test in comparison.differences if test.metric == metric}
    columns = [Column("model"), Column("splits"), Column("median"), Column("mean")]
    columns.append(Column("95 % interval", pair=True))
    kinds = [("best", best), (str(comparison.reference), reference)]
    for name, _ in (kind for kind in kinds if kind[1]):
        columns += [Column(f"vs {name}", signed=True), Column(f"vs {name}, 95 %", signed=True, pair=True)]
        columns.append(Column(f"p vs {name}", digits=4, up=True))
    rows = []
    for model in _ranked(comparison, metric):
        found = model.metrics[metric]
        ends = found.ci95 and (100 * found.ci95[0], 100 * found.ci95[1])
        cells: list[Cell] = [model.label, len(model.seeds), 100 * found.median, 100 * found.mean, ends]
        for _, tests in (kind for kind in kinds if kind[1]):
            cells += _difference(tests.get(model.label), model.label)
        rows.append(tuple(cells))
    note = "Percent points; 95 % intervals by a bootstrap over users."
    if best:
        note += (
            " vs: the model minus the other one, paired over the splits that both have; p with Holm's correction, "
            "≤ where no draw of the bootstrap came that far."
        )
        if all(test.p is None for test in best.values()):
            note += " A single test user gives no interval and no test."
    return Table(metric, tuple(columns), tuple(rows), note)


def cost_table(comparison: Comparison) -> Table:
    """Return what each model costs, and the settings that its fits chose."""
    columns = (
        *(Column("model"), Column("parameters"), Column("epochs", digits=1), Column("trials", digits=1)),
        *(Column("fit s"), Column("score s"), Column("chosen in the fit")),
    )
    rows = tuple(
        (m.label, m.parameters, m.epochs or None, m.trials, m.fit_seconds, m.score_seconds, chosen_text(m.chosen))
        for m in _ranked(comparison)
    )
    fits = sum(len(model.seeds) for model in comparison.models.values())
    total = sum(len(model.seeds) * model.fit_seconds for model in comparison.models.values())
    unit, length = next((one for one in (("hours", 3600), ("minutes", 60)) if total >= one[1]), ("seconds", 1))
    note = f"The times of all {fits:,} fits add up to {total / length:.1f} {unit}."
    told = "Seconds, epochs and the trials of a fit's own search are means over the splits"
    return Table("Cost", columns, rows, f"{told} (–: none, or an older result that does not say). {note}")


def result_tables(comparison: Comparison) -> list[Table]:
    """Return all tables: the one beside the paper where there is one, one for each metric, and the costs."""
    beside = paper_table(comparison)
    metrics = [metric_table(comparison, metric) for metric in reversed(comparison.metrics)]
    return [*([beside] if beside else []), *metrics, cost_table(comparison)]


def results_markdown(comparison: Comparison) -> str:
    """Return the tables as Markdown, below the title and the protocol."""
    card = comparison.protocol
    counts = f"{card.users:,} users, {card.items:,} items, {card.interactions:,} interactions"
    lines = [
        *(f"# {comparison.title or f'Results on {card.name}'}", ""),
        *([f"**{comparison.note}**", ""] if comparison.note else []),
        f"Data: {card.name} ({counts}); protocol {card.hash}; seeds {', '.join(map(str, comparison.seeds))}.",
        "",
        *(f"- {sentence}" for sentence in card.assumptions()),
        "",
    ]
    return "\n".join(lines) + "\n" + "\n".join(markdown(table) for table in result_tables(comparison))


def results_latex(comparison: Comparison) -> str:
    """Return the tables as LaTeX."""
    return "\n".join(latex(table) for table in result_tables(comparison))


def results_csv(comparison: Comparison) -> str:
    """Return the tables of the metrics as one CSV, the paper's values in a column of their own."""
    paper = comparison.paper.models if comparison.paper else {}
    found = [metric_table(comparison, metric) for metric in comparison.metrics]
    columns = max((table.columns for table in found), key=len)  # a metric without tests leaves theirs empty
    tables = []
    for table in found:
        rows = []
        for row in table.rows:
            value = paper.get(str(row[0]), {}).get(table.title)
            rows.append((*row, *[None] * (len(columns) - len(row)), None if value is None else 100 * value))
        tables.append(Table(table.title, (*columns, Column("paper")), tuple(rows)))
    return csv_text(tables)


def chosen_text(chosen: Mapping[str, Sequence[Any]]) -> str:
    """Return what fits chose, each setting as its range over the splits; of nested records the numbers alone."""
    texts = []
    for key, values in chosen.items():
        if all(isinstance(value, dict) for value in values):
            names = dict.fromkeys(name for record in values for name in record)
            columns = {name: [record.get(name, 0) for record in values] for name in names}
            texts += [f"{name} {_range_text(column)}" for name, column in columns.items() if _numeric(column)]
        else:
            texts.append(f"{key} = {_range_text(values)}")
    return "; ".join(texts)


def _range_text(values: Sequence[Any]) -> str:
    if not _numeric(values):
        return ", ".join(dict.fromkeys(str(value) for value in values))
    low, high = f"{min(values):.4g}", f"{max(values):.4g}"
    return low if low == high else f"{low} to {high}"


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _ranked(comparison: Comparison, metric: str | None = None) -> list[ModelSummary]:
    return [comparison.models[label] for label in comparison.ranked(metric)]


def _difference(test: PairedTest | None, label: str) -> list[Cell]:
    if test is None:
        return [None, None, None]
    difference, ends = test.of(label)
    return [100 * difference, ends and (100 * ends[0], 100 * ends[1]), p_cell(test)]
