"""Write the results tables of README.md and docs/reference/results.md from the stored results.

Usage: python scripts/readme_table.py
"""

import re
from dataclasses import replace
from pathlib import Path

from recfusion.evaluation.metrics import MAIN_METRIC
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.comparison_parts import ModelSummary
from recfusion.experiments.paired_tests import PairedTest
from recfusion.experiments.result import Result, read_results
from recfusion.models.registry import DEFAULT_MODEL
from recfusion.paper.tables import METRICS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "reference" / "results.md")
PUBLISHED = {"unet1d (previous step)": "recfusion-unet1d", "unet2d (previous step)": "recfusion-unet2d"}  # ablation
HEAD = "| model | Recall@20 | Recall@50 | NDCG@100 | minus EASE | fit | splits |\n|---|---:|---:|---:|---:|---:|---:|\n"
SETS = {"ml1m": "ML-1M", **{name: name for name in ("ml-100k", "ml-latest-small", "online-retail", "lastfm-2k")}}
OURS = DEFAULT_MODEL
MIXTURE = "mixture"
SINGLE = ("ease", "ease-dan", "elsa")  # the strongest known single models, by today's code
OPPONENTS = (MIXTURE, "ease", "edlae", "rdlae", "ease-dan", "ease-pairs", "elsa", "thinning-linear", "thinning-fast")


def headline_table() -> str:
    """Return the lead of the default model on each data set: over the mixture, the best single model and EASE."""
    lines = [
        f"| data, ten splits | `{OURS}` | minus the mixture | minus the best single | minus EASE | linear |\n",
        "|---|---:|---:|---:|---:|---:|\n",
    ]
    for name, title in SETS.items():
        stored = [one for one in read_results(RESULTS / f"{name}.jsonl") if one.label in {OURS, *OPPONENTS}]
        found, linear = Comparison.of(stored, reference=OURS), Comparison.of(stored, reference="ease-dan")
        leads = {test.a: _lead(test) for test in found.differences if test.metric == MAIN_METRIC}
        best = max(SINGLE, key=lambda label: found.models[label].mean(MAIN_METRIC))
        own = next(test for test in linear.differences if test.metric == MAIN_METRIC and test.a == "thinning-linear")
        cells = [title, f"{100 * found.models[OURS].mean(MAIN_METRIC):.2f}", leads[MIXTURE], f"`{best}` {leads[best]}"]
        lines.append(f"| {' | '.join([*cells, leads['ease'], _gain(own)])} |\n")
    return "".join(lines)


def main_table() -> str:
    """Return the table of ML-1M: our means, the paper's values in brackets, and the paired difference to EASE."""
    found = Comparison.of(results(), table="ml1m")
    paper = found.paper.models if found.paper else {}
    paper = {label: values for label, values in paper.items() if label not in PUBLISHED.values()} | {
        label: paper[name] for label, name in PUBLISHED.items() if name in paper
    }
    tests = {test.a: test for test in found.differences if test.metric == MAIN_METRIC}
    lines = []
    for label in found.ranked():
        model = found.models[label]
        values = [_value(model, metric, paper.get(label, {}).get(metric)) for metric in METRICS]
        cells = [label, *values, _difference(tests.get(label)), f"{model.fit_seconds:.0f} s", str(len(model.seeds))]
        lines.append(f"| {' | '.join(cells)} |\n")
    return HEAD + "".join(lines)


def results() -> list[Result]:
    """Return the main results, and the U-Nets as published."""
    published = [one for one in read_results(RESULTS / "ablation.jsonl") if one.label in PUBLISHED]
    return [*read_results(RESULTS / "ml1m.jsonl"), *published]


def opponents_table() -> str:
    """Return the lead of the default model over each opponent, on each data set."""
    columns = [_ahead(name) for name in SETS]
    heads = [f"[{title}](../../results/{name}.md)" for name, title in SETS.items()]
    lines = [f"| `{OURS}` minus | {' | '.join(heads)} |\n", f"|---|{'---:|' * len(SETS)}\n"]
    for label in (OURS, *OPPONENTS):
        named = "(itself)" if label == OURS else f"`{label}`"
        lines.append(f"| {named} | {' | '.join(column.get(label, '') for column in columns)} |\n")
    return "".join(lines)


def _ahead(name: str) -> dict[str, str]:
    """Return the cells of one data set: the model's NDCG@100, and its lead over each opponent."""
    wanted = {OURS, *OPPONENTS}
    found = Comparison.of(
        (one for one in read_results(RESULTS / f"{name}.jsonl") if one.label in wanted), reference=OURS
    )
    cells = {OURS: f"{100 * found.models[OURS].mean(MAIN_METRIC):.2f}"}
    for test in found.differences:
        if test.metric == MAIN_METRIC:
            cells[test.a] = _lead(test)
    return cells


def _lead(test: PairedTest) -> str:
    """Return the lead over a model, of a test against the default model, with its interval."""
    return _gain(replace(test, difference=-test.difference, ci95=test.ci95 and (-test.ci95[1], -test.ci95[0])))


def _gain(test: PairedTest) -> str:
    """Return the difference of a test with its interval."""
    assert test.ci95 is not None
    low, high = (100 * end for end in test.ci95)
    return f"{100 * test.difference:+.2f} ({low:.2f} to {high:.2f})".replace("-", "−")


def with_tables(document: str) -> str:
    """Return a document with its results tables replaced by new ones."""
    makers = {"data, ten splits": headline_table, "model | Recall@20": main_table, f"`{OURS}` minus": opponents_table}
    for first, table in makers.items():
        found = re.compile(rf"^\| {re.escape(first)} .*\n(\|.*\n)+", re.MULTILINE)
        assert len(found.findall(document)) <= 1, first
        document = found.sub(lambda _, table=table: table(), document)  # type: ignore[misc]
    return document


def _value(model: ModelSummary, metric: str, paper: float | None) -> str:
    theirs = f" ({100 * paper:.2f})" if paper is not None else ""
    return f"{100 * model.mean(metric):.2f}{theirs}"


def _difference(test: PairedTest | None) -> str:
    if test is None:
        return ""
    if test.ci95 is None or test.p_holm is None:
        return f"{100 * test.difference:+.2f}".replace("-", "−")
    low, high = (100 * end for end in test.ci95)
    sign = "" if test.p_holm < 0.05 else " n. s."
    return f"{100 * test.difference:+.2f} ({low:+.2f} to {high:+.2f}){sign}".replace("-", "−")


if __name__ == "__main__":
    for path in DOCUMENTS:
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
