"""Write the README's table of ML-1M again, from the results that are committed.

Usage: python scripts/readme_table.py
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recfusion.experiments.paper import METRICS, TABLES
from recfusion.report.document import n_splits, ranked, read_document

ROOT = Path(__file__).parents[1]
README, STORE = ROOT / "README.md", ROOT / "results" / "ml1m.jsonl"
HEAD = "| model | Recall@20 | Recall@50 | NDCG@100 | less EASE | fit | splits |\n|---|---:|---:|---:|---:|---:|---:|\n"


def headline_table() -> str:
    """Return the table: our means, in brackets the paper's values, and what is paired with EASE."""
    document = read_document(STORE)
    paper = {**TABLES["ablation"].values, **TABLES["ml1m"].values}
    tests = {test["a"]: test for test in document["reference_tests"] if test["metric"] == METRICS[-1]}
    lines = []
    for name in ranked(document["models"]):
        entry = document["models"][name]
        theirs = paper.get(name, (None,) * len(METRICS))
        values = [_value(entry, metric, value) for metric, value in zip(METRICS, theirs, strict=True)]
        cells = [name, *values, _difference(tests.get(name)), f"{entry['fit_seconds']:.0f} s", str(n_splits(entry))]
        lines.append(f"| {' | '.join(cells)} |\n")
    return HEAD + "".join(lines)


def with_table(readme: str, table: str) -> str:
    """Return the README with its table replaced."""
    found = re.compile(r"^\| model \| Recall@20 .*\n(\|.*\n)+", re.MULTILINE)
    assert len(found.findall(readme)) == 1
    return found.sub(lambda _: table, readme)


def _value(entry: Mapping[str, Any], metric: str, paper: float | None) -> str:
    theirs = f" ({paper:.2f})" if paper is not None else ""
    return f"{100 * entry[metric]['mean']:.2f}{theirs}"


def _difference(test: Mapping[str, Any] | None) -> str:
    if test is None:
        return ""
    sign = "" if test["p_holm"] < 0.05 else " n. s."
    return f"{100 * test['difference']:+.2f}{sign}".replace("-", "−")


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8"), headline_table()), encoding="utf-8")
