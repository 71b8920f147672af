"""Numbers in documents that are checked against stored results and benchmarks.

A number with a comment right after it is checked: `45.02<!-- ml1m: thinning ndcg@100 -->` is the mean of ten splits in
percent, `fit` instead of a metric the seconds of a fit, `a - b ndcg@100` the paired difference. `thinning weights/ials`
is the number of splits on which a mixture gives a part some weight. With a JSON file, the rest is the path to a
number: `1.9<!-- benchmarks/serve.json: rows.0.p50_ms -->`. The number is compared as it is written: 45.0 is right for
45.02, 45.1 is not.
"""

import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from recfusion.experiments.comparison import Comparison
from recfusion.experiments.result import read_results

ROOT = Path(__file__).parents[1]
COMMENT = re.compile(r"([+−-]?\d[\d,]*(?:\.\d+)?)( ?%)?<!-- ([\w./-]+): (.+?) -->")


@cache
def _means(store: str) -> Comparison:
    return Comparison.of(read_results(ROOT / "results" / f"{store}.jsonl"))


@cache
def _document(path: str) -> Any:
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


def stored_number(source: str, what: str) -> float:
    """Return the number that a comment names; raise LookupError if there is none."""
    if source.endswith(".json"):
        found: Any = _document(source)
        for key in what.split("/" if "/" in what else "."):
            found = found[int(key)] if isinstance(found, list) else found[key]
        return float(found)
    *labels, metric = what.split()
    if metric.startswith("weights/"):
        return float(_splits_with_weight(source, labels[0], metric.partition("/")[2]))
    models = _means(source).models
    values = [
        models[label].fit_seconds if metric == "fit" else 100 * models[label].mean(metric)
        for label in labels
        if label != "-"
    ]
    if metric == "fit" and any(value is None for value in values):
        raise LookupError(what)
    first, *rest = (float(value or 0) for value in values)
    return first - sum(rest)


def _splits_with_weight(store: str, label: str, part: str) -> int:
    rows = [one for one in read_results(ROOT / "results" / f"{store}.jsonl") if one.label == label]
    if not rows:
        raise LookupError(label)
    return sum(bool(one.chosen["weights"].get(part)) for one in rows)


def wrong_numbers(text: str) -> Iterator[str]:
    """Yield a sentence for each number that differs from the stored one, or has none."""
    for shown, _, source, what in COMMENT.findall(text):
        plain = shown.replace(",", "").replace("−", "-")
        digits = len(plain.partition(".")[2])
        try:
            stored = f"{stored_number(source, what):.{digits}f}"
        except (LookupError, OSError, ValueError, TypeError) as error:
            yield f"{shown}: {source} has no {what} ({type(error).__name__}: {error})"
            continue
        if float(stored) != float(plain):
            yield f"{shown}: {source} has {stored} for {what}"


def check_document(name: str, text: str) -> None:
    """Raise an error that lists the wrong numbers of a document."""
    wrong = list(wrong_numbers(text))
    if wrong:
        raise ValueError(f"{name} shows numbers that differ from the stored ones: {'; '.join(wrong)}")


if __name__ == "__main__":
    for path in sys.argv[1:]:
        for sentence in wrong_numbers(Path(path).read_text(encoding="utf-8")):
            print(f"{path}: {sentence}")
