"""What a comparison found in words, and how the page writes numbers."""

from collections.abc import Mapping, Sequence

from recfusion.experiments.comparison import Comparison
from recfusion.experiments.paired import Test

LEVEL = 0.05  # a corrected p at or above it is noise
PLAIN = "popularity"  # the model that every reader knows: everybody gets the same list
MEANING: Mapping[str, str] = {
    "calibrated_recall": "held-out items found in the first {k}, of as many as could be",
    "recall": "share of the held-out items found in the first {k}",
    "precision": "share of the first {k} that are held-out items",
    "hit_rate": "share of users with a hit in the first {k}",
    "ndcg": "hits in the first {k}, discounted by rank; the ideal order has 100",
    "mrr": "one over the rank of the first hit in the first {k}",
    "map": "precision at the rank of each hit in the first {k}, averaged",
    "popularity": "share of training users who have the items recommended: describes the lists, not their accuracy",
    "coverage": "share of all items recommended to somebody: describes the lists, not their accuracy",
}


def headline(comparison: Comparison) -> tuple[str, str]:
    """Return the best model, and the rest of the sentences that say how good it is and how sure that is.

    It is set beside the reference and popularity, where they are among the others; without a reference, or where that
    is the best itself, beside the next one.
    """
    metric, best = comparison.main_metric, comparison.best()
    model = comparison.models[best]
    value = points(model.mean(metric), digits_of(comparison, metric))
    start = f" reaches {value} {metric} on {splits_text(len(model.seeds))}"
    others = [label for label in comparison.ranked() if label != best]
    if not others:
        return best, f"{start}. No other model was compared with it."
    named = [comparison.reference] if comparison.reference not in (None, best) else others[:1]
    named += [label for label in others if comparison.models[label].model == PLAIN and label not in named]
    said = [_beside(comparison, best, str(label), first=not place) for place, label in enumerate(named)]
    return best, f"{start}: {' and '.join(said)}. {_sure(comparison, best, others)}"


def _beside(comparison: Comparison, best: str, other: str, *, first: bool) -> str:
    unit = " points" if first else ""
    test = comparison.test(comparison.main_metric, best, other)
    if test is None:
        lead = comparison.models[best].mean(comparison.main_metric) - comparison.models[other].mean(
            comparison.main_metric
        )
        return f"{points(lead, 1)}{unit} above {other}, which shares no split with it"
    lead, interval = test.of(best)
    digits = 1 if abs(lead) > 0.0095 else 2
    interval_is = "95\u00a0% interval " if first else ""
    return f"{points(lead, digits)}{unit} above {other} ({interval_is}{span(interval, digits)})"


def _sure(comparison: Comparison, best: str, others: Sequence[str]) -> str:
    """Return the sentence that names the models which were not told apart from the best."""
    tests = {label: test for label in others if (test := comparison.test(comparison.main_metric, best, label))}
    close = [label for label, test in tests.items() if not told_apart(test)]
    if close:
        return f"It could not be told apart from {listed(close)}: the difference may be chance."
    if len(others) == 1:
        return "The difference is beyond chance." if tests else "The difference was not tested."
    untested = [label for label in others if label not in tests]
    rest = f" all others but {listed(untested)} (not tested)" if untested else f" all {len(others)} others"
    return f"Its lead over{rest} is beyond chance."


def base_tests(comparison: Comparison) -> tuple[str, dict[str, Test]]:
    """Return what models are compared with, the reference or else the best, and the other models' tests by label."""
    base = comparison.reference or comparison.best()
    known = comparison.differences if comparison.reference else comparison.tests
    tests = [test for test in known if test.metric == comparison.main_metric]
    return base, {test.a if test.b == base else test.b: test for test in tests}


def told_apart(test: Test) -> bool:
    """Return whether a difference is beyond chance."""
    low, high = test.ci95
    return test.p_holm < LEVEL and not low <= 0 <= high


def meaning(metric: str) -> str:
    """Return what a metric says."""
    kind, _, k = metric.partition("@")
    return MEANING.get(kind, "").format(k=k)


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists them."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def splits_text(n: int) -> str:
    """Return a number of splits."""
    return f"{n} split{'s' * (n != 1)}"


def digits_of(comparison: Comparison, metric: str) -> int:
    """Return the decimals of a metric: one, or two where all its values are below 10 points."""
    return 1 if max(model.mean(metric) for model in comparison.models.values()) >= 0.1 else 2


def points(value: float, digits: int) -> str:
    """Return a share in percent points."""
    return f"{100 * value:.{digits}f}".replace("-", "−")


def signed(value: float) -> str:
    """Return a difference of shares in percent points."""
    return f"{100 * value:+.2f}".replace("-", "−")


def span(interval: tuple[float, float], digits: int, to: str = " to ") -> str:
    """Return an interval of shares in percent points."""
    return to.join(points(end, digits) for end in interval)


def seconds(value: float) -> str:
    """Return a time without its unit."""
    return "<0.01" if value < 0.01 else f"{value:,.{2 if value < 1000 else 0}f}"
