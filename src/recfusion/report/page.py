"""Write the page of a comparison: one self-contained HTML file."""

import json
from base64 import b64encode
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from recfusion.core.files import replacing
from recfusion.evaluation.metrics import MAIN_METRIC, is_descriptive
from recfusion.experiments.comparison import Comparison
from recfusion.report import sections
from recfusion.report.charts import BOX_PLOT_FROM, cost_chart, curve_charts, difference_chart, mean_charts
from recfusion.report.experiment_toml import FILE, experiment_toml
from recfusion.report.main_table import chosen_text, code_mark, code_note, code_text, page_columns
from recfusion.report.tables import metric_table, paper_table, results_csv


def write_page(comparison: Comparison, path: str | Path) -> Path:
    """Write the page of a comparison to `path`, and return the path."""
    return write_text(Path(path), render(comparison))


def write_text(path: Path, text: str) -> Path:
    """Write a text file, atomically."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")
    return path


def render(comparison: Comparison, item_map: str = "") -> str:
    """Return the page of a comparison as HTML; `item_map` is the address of an image for the section of the map."""
    main = comparison.main_metric
    metrics = sorted(comparison.metrics, key=lambda metric: metric != main)  # the main one first
    tested, (base, tests) = {test.metric for test in comparison.tests}, sections.base_tests(comparison)
    data = json.dumps(comparison.document(), ensure_ascii=False, separators=(",", ":"))
    return template("report.html.jinja").render(
        comparison=comparison,
        protocol=comparison.protocol,
        base=base,
        metrics=metrics,
        main=main,
        validation_metric=MAIN_METRIC,
        descriptive=[metric for metric in metrics if is_descriptive(metric)],
        models={label: comparison.models[label] for label in comparison.ranked()},
        columns=page_columns(comparison, metrics),
        compared=bool(tests),
        marks={label: code_mark(model.code, model.place) for label, model in comparison.models.items()},
        code_note=code_note(comparison),
        groups=sections.significance_groups(comparison),
        differences=difference_chart(comparison),
        means=mean_charts(comparison),
        box_plot_from=BOX_PLOT_FROM,
        costs=cost_chart(comparison),
        details=[metric_table(comparison, metric) for metric in metrics if metric in tested],
        paper=paper_table(comparison),
        slices=sections.slice_tables(comparison),
        item_map=item_map,
        curves=curve_charts(comparison),
        examples=sections.example_lists(comparison),
        chosen={label: chosen_text(model.chosen) for label, model in comparison.models.items()},
        code={label: code_text(model) for label, model in comparison.models.items()},
        experiment=experiment_toml(comparison),
        experiment_file=FILE,
        downloads={
            "results.json": _data_uri("application/json", data),
            "results.csv": _data_uri("text/csv", results_csv(comparison)),
        },
    )


def template(name: str) -> Template:
    """Return a template of our pages."""
    environment = Environment(
        loader=PackageLoader("recfusion.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"breakable": _breakable, "count": "{:,}".format, "meaning": sections.meaning}
    return environment.get_template(name)


def _data_uri(kind: str, text: str) -> str:
    return f"data:{kind};base64,{b64encode(text.encode()).decode('ascii')}"


def _breakable(name: object) -> Markup:
    """Return `name` escaped, with optional line breaks."""
    return Markup(str(escape(name)).replace("_", "_<wbr>"))
