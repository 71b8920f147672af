"""Write the README's table of ML-1M again, from the results that are committed.

Usage: python scripts/readme_table.py
"""

import re
from pathlib import Path

from recfusion.experiments.comparison import Comparison
from recfusion.experiments.details import Model
from recfusion.experiments.paired import Test
from recfusion.experiments.paper import METRICS
from recfusion.experiments.result import Result, read_results

ROOT = Path(__file__).parents[1]
README, STORE = ROOT / "README.md", ROOT / "results" / "ml1m.jsonl"
# The U-Nets whose items have places with what they are compared with, and codes of users.
MORE = tuple(ROOT / "results" / name for name in ("unets-ml1m.jsonl", "latent-ml1m.jsonl"))
PUBLISHED = ", published form"
_UNETS = ("recfusion-unet1d", "recfusion-unet2d")
_ADDED = (*_UNETS, "recfusion-map", "user-knn", "recfusion-latent")
HEAD = "| model | Recall@20 | Recall@50 | NDCG@100 | minus EASE | fit | splits |\n|---|---:|---:|---:|---:|---:|---:|\n"


def headline_table() -> str:
    """Return the table: our means, in brackets the paper's values, and what is paired with EASE."""
    found = Comparison.of(results(), table="ml1m")
    paper = found.paper.models if found.paper else {}
    paper = {label: values for label, values in paper.items() if label not in _UNETS} | {
        label + PUBLISHED: paper[label] for label in _UNETS if label in paper
    }
    tests = {test.a: test for test in found.differences if test.metric == METRICS[-1]}
    lines = []
    for label in found.ranked():
        model = found.models[label]
        values = [_value(model, metric, paper.get(label, {}).get(metric)) for metric in METRICS]
        cells = [label, *values, _difference(tests.get(label)), f"{model.fit_seconds:.0f} s", str(len(model.seeds))]
        lines.append(f"| {' | '.join(cells)} |\n")
    return HEAD + "".join(lines)


def results() -> list[Result]:
    """Return the main results, with U-Nets of the published form under names that say so, and the later models."""
    main = [
        one.model_copy(update={"label": one.label + PUBLISHED})
        if one.label in _UNETS and "layout" not in one.settings
        else one
        for one in read_results(STORE)
    ]
    known = {(one.label, one.seed) for one in main}
    more = [one for store in MORE if store.exists() for one in read_results(store)]
    return main + [one for one in more if one.label in _ADDED and (one.label, one.seed) not in known]


def with_table(readme: str, table: str) -> str:
    """Return the README with its table replaced."""
    found = re.compile(r"^\| model \| Recall@20 .*\n(\|.*\n)+", re.MULTILINE)
    assert len(found.findall(readme)) == 1
    return found.sub(lambda _: table, readme)


def _value(model: Model, metric: str, paper: float | None) -> str:
    theirs = f" ({100 * paper:.2f})" if paper is not None else ""
    return f"{100 * model.mean(metric):.2f}{theirs}"


def _difference(test: Test | None) -> str:
    if test is None:
        return ""
    if test.ci95 is None or test.p_holm is None:
        return f"{100 * test.difference:+.2f}".replace("-", "−")
    low, high = (100 * end for end in test.ci95)
    sign = "" if test.p_holm < 0.05 else " n. s."
    return f"{100 * test.difference:+.2f} ({low:+.2f} to {high:+.2f}){sign}".replace("-", "−")


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8"), headline_table()), encoding="utf-8")
