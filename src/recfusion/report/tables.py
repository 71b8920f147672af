"""The tables of a comparison as Markdown, CSV and LaTeX: the paper's values, each metric with tests, and the costs."""

from recfusion.experiments.comparison import MARKS, Comparison
from recfusion.experiments.comparison_parts import ModelSummary
from recfusion.experiments.paired_tests import PairedTest
from recfusion.report.formats import Cell, Column, Row, Table, counted, csv_text, latex, markdown, p_cell, percent
from recfusion.report.main_table import code_note, columns_in, file_columns, row_name


def paper_table(comparison: Comparison) -> Table | None:
    """Return the paper's value, ours and the difference of each metric; None if the paper has none of the models."""
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
            cells: list[Cell] = [row_name(model), len(model.seeds)]
            for metric in metrics:
                theirs, ours = 100 * paper.models[model.label][metric], 100 * model.metrics[metric].median
                cells += [theirs, ours, ours - theirs]
            rows.append(tuple(cells))
    note = (
        f"Percent points. Paper: {paper.title}. Ours: the median over the splits of each split's mean; "
        "difference: ours minus the paper's."
    )
    return Table("Paper and ours", tuple(columns), tuple(rows), f"{note} {code_note(comparison)}".rstrip())


def metric_table(comparison: Comparison, metric: str) -> Table:
    """Return one metric with intervals, and the paired tests against the best model and the reference."""
    best = {test.b: test for test in comparison.tests if test.metric == metric}
    reference = {test.a: test for test in comparison.differences if test.metric == metric}
    columns = [Column("model"), Column("splits"), Column("median"), Column("mean")]
    columns.append(Column("95 % interval", pair=True))
    kinds = [kind for kind in (("best", best), (str(comparison.reference), reference)) if kind[1]]
    for name, _ in kinds:
        columns += [Column(f"vs {name}", signed=True), Column(f"vs {name}, 95 %", signed=True, pair=True)]
        columns.append(Column(f"p vs {name}", digits=4, up=True))
    rows = []
    for model in _ranked(comparison, metric):
        found = model.metrics[metric]
        means = (100 * found.median, 100 * found.mean, percent(found.ci95))
        cells: list[Cell] = [row_name(model), len(model.seeds), *means]
        for _, tests in kinds:
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
    return Table(metric, tuple(columns), tuple(rows), f"{note} {code_note(comparison)}".rstrip())


def cost_table(comparison: Comparison) -> Table:
    """Return the columns of the main table beside the metrics: the costs, and the settings that fits chose."""
    columns = columns_in("files", comparison)
    rows = tuple((row_name(model), *(column.value(model) for column in columns)) for model in _ranked(comparison))
    fits = sum(len(model.seeds) for model in comparison.models.values())
    total = sum(len(model.seeds) * model.fit_seconds for model in comparison.models.values())
    unit, length = next((one for one in (("hours", 3600), ("minutes", 60)) if total >= one[1]), ("seconds", 1))
    note = f"The times of all {fits:,} fits add up to {total / length:.1f} {unit}."
    means = "Seconds, epochs and the trials of a fit's own search are means over the splits"
    note = f"{means} (–: none, or an older result that does not say). {note} {code_note(comparison)}".rstrip()
    return Table("Cost", (Column("model"), *file_columns(columns)), rows, note)


def result_tables(comparison: Comparison) -> list[Table]:
    """Return all tables: the paper's values if there are any, one table per metric, and the costs."""
    paper = paper_table(comparison)
    metrics = [metric_table(comparison, metric) for metric in reversed(comparison.metrics)]
    return [*([paper] if paper else []), *metrics, cost_table(comparison)]


def results_markdown(comparison: Comparison) -> str:
    """Return the tables as Markdown, under the title and the protocol."""
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


def overview_table(comparison: Comparison) -> Table:
    """Return one table of models x metrics with intervals and marks of significance."""
    columns = (Column("model"), *(Column(metric) for metric in comparison.metrics))
    rows = tuple(
        (row_name(model), *(comparison.cell(model.label, metric) for metric in comparison.metrics))
        for model in _ranked(comparison)
    )
    note = f"{counted(len(comparison.seeds), 'split')}. {MARKS} Ranked by {comparison.main_metric}."
    return Table(f"Results on {comparison.protocol.name}", columns, rows, f"{note} {code_note(comparison)}".rstrip())


def results_latex(comparison: Comparison) -> str:
    """Return the overview and all other tables as LaTeX."""
    return "\n".join(latex(table) for table in (overview_table(comparison), *result_tables(comparison)))


def results_csv(comparison: Comparison) -> str:
    """Return one CSV with a row per metric and model: the metric's table, the paper's value, and COLUMNS."""
    paper = comparison.paper.models if comparison.paper else {}
    found = [metric_table(comparison, metric) for metric in comparison.metrics]
    columns = max((table.columns for table in found), key=len)  # a metric without tests leaves theirs empty
    more = columns_in("csv", comparison)
    tables = []
    for table in found:
        rows: list[Row] = []
        for row, model in zip(table.rows, _ranked(comparison, table.title), strict=True):
            value = paper.get(model.label, {}).get(table.title)
            values = [*row[1:], *[None] * (len(columns) - len(row)), None if value is None else 100 * value]
            rows.append((model.label, *values, *(column.value(model) for column in more)))
        tables.append(Table(table.title, (*columns, Column("paper"), *file_columns(more)), tuple(rows)))
    return csv_text(tables)


def _ranked(comparison: Comparison, metric: str | None = None) -> list[ModelSummary]:
    return [comparison.models[label] for label in comparison.ranked(metric)]


def _difference(test: PairedTest | None, label: str) -> list[Cell]:
    if test is None:
        return [None, None, None]
    difference, ends = test.of(label)
    return [100 * difference, percent(ends), p_cell(test)]
