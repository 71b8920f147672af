"""What a mixture chooses on validation users: weights of parts and of history entries, and parts to drop."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from recfusion.core.errors import InputError, choices
from recfusion.data.signals import Extra
from recfusion.evaluation.metrics import Values
from recfusion.models.base import Recommender, Shape
from recfusion.models.sequence.recency import UNWEIGHTED, Powers
from recfusion.models.thinning.mixture_weights import Ballot, Tried, Weights, find_weights, variant
from recfusion.models.thinning.parts import weighs_entries
from recfusion.models.thinning.plan import LARGE, LOCAL, ORDER

# The weights without validation users. A network counts for more with enough data for the large one.
_USUAL = {"thinning-pairs": 0.4, LOCAL: 0.4, "ials": 0.25, "thinning-deep": 0.6, ORDER: 0.6}
_USUAL_LARGE = _USUAL | {"thinning-deep": 1.6, ORDER: 3.2}
_RECENCY = 0.5  # power of recency without validation users
_POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of recency that are tried
_RATING_POWERS = (0.5, 1.0)  # of ratings and counts that are tried
N_POWERS = len(_POWERS + _RATING_POWERS)
_OTHER = 0.25  # weight of any other model


def model_name(label: str) -> str:
    """Return the model name of a part: `thinning-deep#2` is a second `thinning-deep`."""
    return label.partition("#")[0]


def rounded_shares(weights: Weights) -> dict[str, float]:
    """Return the shares of all parts with a weight above 0, rounded."""
    total = sum(weights.values())
    shares = {name: round(weight / total, 4) for name, weight in weights.items()}
    return {name: share for name, share in shares.items() if share > 0}


def usual_weights(parts: Iterable[str], shape: Shape) -> dict[str, float]:
    """Return the default weights, which chosen weights are pulled towards."""
    labels = list(parts)
    names = [model_name(label) for label in labels]
    usual = dict(_USUAL_LARGE if shape.interactions >= LARGE else _USUAL)
    if "thinning-pairs" in names:
        usual.pop(LOCAL)  # it has this weight only if it replaces that one
    return {label: usual.get(name, _OTHER) / names.count(name) for label, name in zip(labels, names, strict=True)}


def found_weights(ballot: Ballot, usual: Mapping[str, float]) -> dict[str, float]:
    """Return the weights that are best for the users of a ballot; parts of the same model get equal weights."""
    names = [model_name(label) for label in usual]
    together: dict[str, float] = dict.fromkeys(names, 0.0)
    for name, weight in zip(names, usual.values(), strict=True):
        together[name] += weight
    found = find_weights(ballot.joined(names), together)
    return {label: found[name] / names.count(name) for label, name in zip(usual, names, strict=True)}


def given_weights(weights: Mapping[str, float], parts: Mapping[str, Recommender]) -> dict[str, float]:
    """Return the weights of all parts that a user gave; raise if they are no weights of these parts."""
    for name in weights:
        if name not in parts:
            raise choices("part in weights", name, parts, "weights")
    given = {name: float(weights.get(name, 0.0)) for name in parts}
    if min(given.values()) < 0 or sum(given.values()) <= 0:
        raise InputError(
            f"Expected weights of at least 0 for {', '.join(given)}, not all of them 0, got {weights}.", "weights"
        )
    return given


def tried_powers(
    parts: Mapping[str, Recommender], extra: Extra | None, recency: Weights | None, ratings: Weights | None
) -> dict[str, list[Powers]]:
    """Return the powers to try for each part whose entries are weighted, the usual or given ones first."""
    known = extra or Extra()
    usual = _RECENCY if known.times is not None else 0.0
    grid = [(usual, 0.0)]
    grid += [(p, 0.0) for p in _POWERS if known.times is not None]
    grid += [(usual, q) for q in _RATING_POWERS if known.grades is not None]

    def given(name: str, p: float, q: float) -> Powers:
        return p if recency is None else recency.get(name, 0.0), q if ratings is None else ratings.get(name, 0.0)

    weighed = [name for name, part in parts.items() if extra is not None and weighs_entries(part)]
    return {name: list(dict.fromkeys(given(name, *each) for each in grid)) for name in weighed}


def entry_note(powers: Powers) -> str:
    """Return how entries are weighted, as the end of a sentence about a part; nothing if they are not."""
    p, q = powers
    factors = " ".join([f"(1 + r)^-{p:g}"] * bool(p) + [f"g^{q:g}"] * bool(q))
    of = " and ".join(["r newer ones"] * bool(p) + ["the rating or count g"] * bool(q))
    return f"; an entry with {of} counts {factors}" if of else ""


def helpful_weights(ballot: Ballot, usual: Weights) -> dict[str, float]:
    """Return chosen weights of the parts that help: one by one, the part that costs the most gets none.

    After each of them, the weights of the others are chosen again.
    """
    usual = dict(usual)
    while True:
        found = found_weights(ballot.named({name: name for name in usual}), usual)
        added = contributions(ballot, {name: weight for name, weight in found.items() if weight})
        worst = min(added, key=added.__getitem__, default=None)
        if worst is None or added[worst] > 0:
            return dict.fromkeys(ballot.names, 0.0) | found
        usual = {name: weight for name, weight in usual.items() if found[name] and name != worst}


def choose_together(
    ballot: Ballot, tried: Tried, usual: Weights, given: Weights | None = None, *, drop: bool = True
) -> tuple[dict[str, Powers], dict[str, float]]:
    """Return the powers and the weight of each part that are best together; `ballot` has all that is tried.

    Powers that are best for a part alone give the first weights. With these, each part tries its other powers beside
    the other parts, and the weights are chosen again. A change must gain more than a standard error. With `drop`,
    parts that do not help get no weight. `given` weights stay as they are.
    """

    def weigh(ballot: Ballot) -> dict[str, float]:
        if given is not None or len(usual) == 1:
            return dict(given or usual)
        return helpful_weights(ballot, usual) if drop else found_weights(ballot, usual)

    chosen = {name: powers[0] for name, powers in tried.items()}

    def mixed(changed: Mapping[str, Powers]) -> Ballot:
        return ballot.named({name: variant(name, {**chosen, **changed}.get(name, UNWEIGHTED)) for name in usual})

    for name, powers in tried.items():
        chosen[name] = _best(powers, lambda each: ballot.ndcg_of(variant(name, each)))  # noqa: B023
    weights, alone = weigh(mixed({})), dict(chosen)
    for name in (name for name in tried if weights[name]):
        others = [chosen[name], *tried[name]]
        chosen[name] = _best(others, lambda each: mixed({name: each}).ndcg(weights))  # noqa: B023
    return chosen, weights if chosen == alone else weigh(mixed({}))


def _best(powers: Iterable[Powers], judge: Callable[[Powers], Values]) -> Powers:
    """Return the best powers, or the first ones if the gain over them is below a standard error."""
    found = {each: judge(each) for each in powers}
    first, best = next(iter(found)), max(found, key=lambda each: float(found[each].mean()))
    gain = found[best] - found[first]
    return best if gain.mean() > gain.std() / np.sqrt(len(gain)) else first


def contributions(ballot: Ballot, weights: Weights) -> dict[str, float]:
    """Return how much NDCG@100 each part adds: the mean with these weights, minus that without the part."""
    shares = {name: weights.get(name, 0.0) for name in ballot.names}
    whole = float(ballot.ndcg(shares).mean())
    left = {name: shares | {name: 0.0} for name in weights}
    return {name: whole - float(ballot.ndcg(others).mean()) for name, others in left.items() if any(others.values())}
