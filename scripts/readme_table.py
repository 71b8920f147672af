"""Write the README's table of ML-1M again, from the results that are committed.

Usage: python scripts/readme_table.py
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recfusion.report.document import n_splits, ranked, read_document

ROOT = Path(__file__).parents[1]
README, STORE = ROOT / "README.md", ROOT / "results" / "ml1m.jsonl"
METRICS = ("calibrated_recall@20", "calibrated_recall@50", "ndcg@100")
HEAD = "| model | Recall@20 | Recall@50 | NDCG@100 | less EASE | fit | splits |\n|---|---:|---:|---:|---:|---:|---:|\n"


def headline_table() -> str:
    """Return the table: our means, in brackets the paper's values, and what is paired with EASE."""
    document = read_document(STORE)
    paper = (document.get("paper") or {}).get("models", {})
    tests = {test["a"]: test for test in document["reference_tests"] if test["metric"] == METRICS[-1]}
    lines = []
    for name in ranked(document["models"]):
        entry = document["models"][name]
        values = [_value(entry, paper.get(name, {}), metric) for metric in METRICS]
        cells = [name, *values, _difference(tests.get(name)), f"{entry['fit_seconds']:.0f} s", str(n_splits(entry))]
        lines.append(f"| {' | '.join(cells)} |\n")
    return HEAD + "".join(lines)


def with_table(readme: str, table: str) -> str:
    """Return the README with its table replaced."""
    found = re.compile(r"^\| model \| Recall@20 .*\n(\|.*\n)+", re.MULTILINE)
    assert len(found.findall(readme)) == 1
    return found.sub(lambda _: table, readme)


def _value(entry: Mapping[str, Any], paper: Mapping[str, float], metric: str) -> str:
    theirs = f" ({100 * paper[metric]:.2f})" if metric in paper else ""
    return f"{100 * entry[metric]['mean']:.2f}{theirs}"


def _difference(test: Mapping[str, Any] | None) -> str:
    if test is None:
        return ""
    sign = "" if test["p_holm"] < 0.05 else " n. s."
    return f"{100 * test['difference']:+.2f}{sign}".replace("-", "−")


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8"), headline_table()), encoding="utf-8")
