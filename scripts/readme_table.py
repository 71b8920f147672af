"""Write the results tables and claims of README.md and docs/reference/results.md from the stored results.

Usage: python scripts/readme_table.py
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from recfusion.evaluation.metrics import MAIN_METRIC
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.comparison_parts import ModelSummary
from recfusion.experiments.paired_tests import PairedTest
from recfusion.experiments.result import Result, read_results
from recfusion.models.registry import DEFAULT_MODEL
from recfusion.paper.tables import METRICS
from recfusion.report.main_table import code_mark, row_name

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "reference" / "results.md")
PUBLISHED = {"unet1d (previous step)": "recfusion-unet1d", "unet2d (previous step)": "recfusion-unet2d"}  # ablation
HEAD = "| model | Recall@20 | Recall@50 | NDCG@100 | minus EASE | fit | splits |\n|---|---:|---:|---:|---:|---:|---:|\n"
SETS = {"ml1m": "ML-1M", **{name: name for name in ("ml-100k", "ml-latest-small", "online-retail", "lastfm-2k")}}
OURS = DEFAULT_MODEL
MIXTURE, WITH_RECVAE = "mixture", "mixture with recvae"
SINGLE = ("ease", "ease-dan", "elsa")  # the strongest known single models, by today's code
OPPONENTS = (MIXTURE, "ease", "edlae", "rdlae", "ease-dan", "ease-pairs", "elsa", "thinning-linear", "thinning-fast")
# The rows that must be by today's code (tests/test_readme.py).
HEADLINE = (OURS, MIXTURE, *SINGLE, "thinning-linear", "thinning-fast")


@cache
def stored(name: str) -> list[Result]:
    """Return the results of a store."""
    return read_results(RESULTS / f"{name}.jsonl")


@cache
def headline_table() -> str:
    """Return the lead of the default model on each data set: over the mixture, the best single model and EASE."""
    lines = [
        f"| data, ten splits | `{OURS}` | minus the mixture | minus the best single | minus EASE | linear |\n",
        "|---|---:|---:|---:|---:|---:|\n",
    ]
    for name, title in SETS.items():
        shown = [one for one in stored(name) if one.label in HEADLINE]
        found, linear = Comparison.of(shown, reference=OURS), Comparison.of(shown, reference="ease-dan")
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
        costs = [f"{model.fit_seconds:.0f} s", str(len(model.seeds))]
        cells = [row_name(model), *values, _difference(tests.get(label)), *costs]
        lines.append(f"| {' | '.join(cells)} |\n")
    return HEAD + "".join(lines)


def results() -> list[Result]:
    """Return the main results, and the U-Nets as published."""
    return [*stored("ml1m"), *(one for one in stored("ablation") if one.label in PUBLISHED)]


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
    found = Comparison.of((one for one in stored(name) if one.label in wanted), reference=OURS)
    cells = {OURS: f"{100 * found.models[OURS].mean(MAIN_METRIC):.2f}"}
    for test in found.differences:
        if test.metric == MAIN_METRIC:
            cells[test.a] = _lead(test)
    return {label: f"{text} {_mark(found.models[label])}".rstrip() for label, text in cells.items()}


def readme_claim() -> str:
    """Return the lead over the other mixture, in short."""
    _, _, other, _, lead = _mixtures()
    return f"On ML-1M, `{WITH_RECVAE}` has {other.split()[0]}; `{OURS}` minus it is {lead}."


def recvae_claim() -> str:
    """Return how the two mixtures of known models compare on ML-1M."""
    members, usual, other, gap, lead = _mixtures()
    return (
        f"  - On ML-1M, `{WITH_RECVAE}` ({members}) has {other}, and `{MIXTURE}` {usual}: a difference of {gap}. "
        f"`{OURS}` minus `{WITH_RECVAE}` is {lead}."
    )


def shop_claim() -> str:
    """Return how the mixture and one of its members compare in the shop."""
    (mixture, single), gap = _pair("online-retail", MIXTURE, "ease-dan")
    return f"  - On online-retail, `{MIXTURE}` has {mixture}, and `ease-dan` alone {single}: a difference of {gap}."


@cache
def _mixtures() -> tuple[str, str, str, str, str]:
    """Return the members of the other mixture, both means, their difference, and the lead over the other one."""
    (other, usual), gap = _pair("ml1m", WITH_RECVAE, MIXTURE)
    _, lead = _pair("ml1m", OURS, WITH_RECVAE)
    members = next(one.settings["members"] for one in stored("ml1m") if one.label == WITH_RECVAE)
    return ", ".join(f"`{name}`" for name in members.split(",")), usual, other, gap, lead


def _pair(name: str, label: str, other: str) -> tuple[list[str], str]:
    """Return the means of two models with their marks, and the paired difference of the first to the second."""
    found = Comparison.of((one for one in stored(name) if one.label in (label, other)), reference=other)
    (gap,) = (_gain(test) for test in found.differences if test.metric == MAIN_METRIC)
    models = [found.models[each] for each in (label, other)]
    return [f"{100 * model.mean(MAIN_METRIC):.2f} {_mark(model)}".rstrip() for model in models], gap


def _mark(model: ModelSummary) -> str:
    return code_mark(model.code, model.place)


def _lead(test: PairedTest) -> str:
    """Return the lead over a model, of a test against the default model, with its interval."""
    return _gain(replace(test, difference=-test.difference, ci95=test.ci95 and (-test.ci95[1], -test.ci95[0])))


def _gain(test: PairedTest) -> str:
    """Return the difference of a test with its interval."""
    assert test.ci95 is not None
    low, high = (100 * end for end in test.ci95)
    return f"{100 * test.difference:+.2f} ({low:.2f} to {high:.2f})".replace("-", "−")


def with_tables(document: str) -> str:
    """Return a document with its results tables and claims replaced by new ones."""
    tables: dict[str, Callable[[], str]] = {
        "data, ten splits": headline_table,
        "model | Recall@20": main_table,
        f"`{OURS}` minus": opponents_table,
    }
    for first, table in tables.items():
        document = _replaced(rf"^\| {re.escape(first)} .*\n(\|.*\n)+", table, document)
    claims = {
        f"On ML-1M, `{WITH_RECVAE}` has": readme_claim,
        f"  - On ML-1M, `{WITH_RECVAE}` (": recvae_claim,
        f"  - On online-retail, `{MIXTURE}` has": shop_claim,
    }
    for first, claim in claims.items():
        document = _replaced(rf"^{re.escape(first)}.*$", claim, document)
    return document


def _replaced(pattern: str, make: Callable[[], str], document: str) -> str:
    found = re.compile(pattern, re.MULTILINE)
    assert len(found.findall(document)) <= 1, pattern
    return found.sub(lambda _: make(), document)


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
