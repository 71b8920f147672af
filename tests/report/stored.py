"""Results for reports: hand-made ones whose numbers can be checked, and real ones of small models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import numpy as np

from conftest import raw
from recfusion.data.catalog import CATALOG
from recfusion.data.interactions import Interactions, PreparationStep, ReadReport
from recfusion.data.options import Preparation, Source, SplitPlan
from recfusion.data.prepare import prepare
from recfusion.data.protocol import Protocol
from recfusion.data.split import split
from recfusion.evaluation.evaluate import PopularitySlices
from recfusion.experiments.candidate import Candidate
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.fit import fit_and_judge
from recfusion.experiments.result import Example, ExampleItem, Result
from recfusion.models.code_digest import code_digest
from recfusion.models.registry import MODELS as REGISTRY
from recfusion.training.epoch import Curve

METRICS = ("recall@20", "ndcg@100")
USERS = 40
EVIL = "<script>alert(1)</script> & \"quoted\" 'text'"


def protocol(**others: Any) -> Protocol:
    """Return a card; nothing checks its hash here."""
    card: dict[str, Any] = {
        "source": Source(data="made.csv"),
        "preparation": Preparation(min_rating=4),
        "plan": SplitPlan(),
        "metrics": METRICS,
        "name": "made up",
        "fingerprint": "f1f2",
        "users": 659,
        "items": 2078,
        "interactions": 44413,
        "read": ReadReport(100_010, missing=17, unparsable=3, notes=("A note of the reader.",)),
        "steps": (PreparationStep("rows as read", 671, 9066, 100_004),),
        "licence": "a licence",
        "citation": "a citation",
        "hash": "9acf6762abbd",
    }
    found = card | others
    if found["name"] in CATALOG:  # as many rows as published, or it would not be that data
        found["read"] = replace(found["read"], rows=CATALOG[found["name"]].ratings)
    return Protocol(**found)


def values(mean: float, wobble: float = 0.0) -> list[float]:
    """Return a value per user with that mean; `wobble` is how far users are from it in turn, beside what all share."""
    users = np.arange(USERS)
    shared = 0.04 * (users - users.mean()) / USERS
    return (mean + shared + np.where(users % 4 < 2, wobble, -wobble)).tolist()


def result(label: str, mean: float, wobble: float = 0.0, *, seed: int = 0, **others: Any) -> Result:
    """Return a result with that mean of ndcg@100, and half of it of recall@20."""
    made: dict[str, Any] = {
        "label": label,
        "model": label,
        "title": "a title",
        "seed": seed,
        "settings": {"l2": 5.0},
        "chosen": {},
        "parameters": 1234,
        "curve": Curve(),
        "fit_seconds": 0.5,
        "threads": 1,
        "validation": {},
        "score_seconds": 0.1,
        "users": np.arange(USERS),
        "history_size": np.arange(USERS) + 4,
        "test": {"recall@20": np.array(values(mean / 2, wobble)), "ndcg@100": np.array(values(mean, wobble))},
        "slices": PopularitySlices((3, 40, 1200), (10, 10, 10), {20: (4, 2, 1)}),
        "versions": {"numpy": "2.1"},
        "finished": datetime(2025, 3, 9, 12, tzinfo=UTC),
        "protocol": protocol(),
    }
    made |= others
    if entry := REGISTRY.get(made["model"]):
        made.setdefault("code", code_digest(entry, made["settings"]))  # today's
    elif "model" not in others:
        made.setdefault("place", "own.py:Model")
    made["test"] = {name: of for name, of in made["test"].items() if name in made["protocol"].metrics}
    return Result(**made)


def example(number: int, places: Mapping[str, bool], **others: Any) -> Example:
    """Return a user's list from titles to whether they are hits."""
    shown = tuple(ExampleItem(title, hit) for title, hit in places.items())
    made: dict[str, Any] = {"number": number, "history": ("Film 1", "Film 2"), "more": 30, "places": shown}
    return Example(**(made | others))


@cache
def ordinary() -> Comparison:
    """Return three models on three splits: slim is told apart from EASE, near is not."""
    made = [("slim", 0.322, 0.004), ("ease", 0.361, 0.0), ("near", 0.36, 0.09)]
    found = [result(label, mean + seed / 100, wobble, seed=seed) for seed in range(3) for label, mean, wobble in made]
    return Comparison.of(found, command="recfusion compare")


def compared(means: Mapping[str, float], **others: Any) -> Comparison:
    """Return a comparison of models with those means on one split."""
    return Comparison.of([result(label, mean, **others) for label, mean in means.items()])


def strange() -> Comparison:
    """Return thirty models with names without end, zeros, odd letters, and different numbers of splits."""
    labels = [f"model{i}" + "_x" * i * 4 for i in range(27)] + ["unbroken" * 12, "長い" * 30, "$x^$ \x08 {y}"]
    found = [
        result(label, i / 40, title="word " * 40 * (i % 2), fit_seconds=0.0 if i < 3 else 1e-5 * 9**i, parameters=i * i)
        for i, label in enumerate(labels)
    ]
    found += [result(labels[3], 0.2, seed=1), result(labels[4], 0.2, seed=1)]
    shown = (example(1, {}), example(2, {"a" * 300: True, "": False}, history=(), more=0))
    found[-1] = found[-1].model_copy(update={"examples": shown})
    card = protocol(name="unbroken" * 20, steps=(), read=ReadReport(0), licence="", citation="")
    return Comparison.of([one.model_copy(update={"protocol": card}) for one in found], command="x" * 500)


def evil() -> Comparison:
    """Return a comparison in which every text is HTML."""
    card = protocol(
        **dict.fromkeys(("name", "hash", "licence", "citation", "fingerprint"), EVIL),
        read=ReadReport(0, notes=(EVIL,)),
        steps=(PreparationStep(EVIL, 1, 1, 1),),
    )
    shown = (example(1, {EVIL: True}, user=EVIL, history=(EVIL,)),)
    texts: dict[str, Any] = {"title": EVIL, "settings": {EVIL: EVIL}, "chosen": {EVIL: EVIL}, "versions": {EVIL: EVIL}}
    curve = Curve((1, 2), (0.1, 0.1), (0.1, 0.2), (1.0, 1.0))
    found = [
        result(EVIL, 0.3, protocol=card, place=f"{EVIL}:M", examples=shown, curve=curve, **texts),
        result("other", 0.1, protocol=card),
    ]
    return Comparison.of(found, title=EVIL, note=EVIL, command=EVIL, reference=EVIL)


def single() -> Comparison:
    """Return a comparison on a single test user, who has a value on each of two splits."""
    one: dict[str, Any] = {"users": np.array([3]), "history_size": np.array([4])}
    means = {"popularity": 0.2, "ease": 0.3, "slim": 0.1}
    found = [
        result(label, mean, seed=seed, **one, test={metric: np.array([mean + seed / 10]) for metric in METRICS})
        for label, mean in means.items()
        for seed in (0, 1)
    ]
    return Comparison.of(found)


MODELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "popularity": ("popularity", {}),
    "ease": ("ease", {"l2": 10.0}),
    "small": ("recfusion", {"width": 8, "max_epochs": 3}),
}


def small_data() -> Interactions:
    """Return 90 users in three groups with items of their own, five to nine each."""
    rng = np.random.default_rng(1)
    pairs = {(user, int(item) + 10 * (user % 3)) for user in range(90) for item in rng.permutation(10)[: 5 + user % 5]}
    users, items = zip(*sorted(pairs), strict=True)
    return prepare(raw({"user": [f"u{u}" for u in users], "item": [f"i{i}" for i in items]}), Preparation())


@cache
def real_results() -> Sequence[Result]:
    """Return three models, one of them a network, on two splits; EASE is on the second one alone."""
    data = small_data()
    card = Protocol.of(data, SplitPlan(), ("recall@5", "ndcg@10"))
    found = []
    for seed in (0, 1):
        parts = split(data, seed=seed)
        for label, (model, settings) in MODELS.items():
            if (label, seed) != ("ease", 0):
                candidate = Candidate.of(label, model, settings)
                found.append(fit_and_judge(candidate, data, card, parts, threads=1).result)
    return tuple(found)


@cache
def real() -> Comparison:
    """Return the comparison of the real results."""
    return Comparison.of(real_results())


MADE: Mapping[str, Callable[[], Comparison]] = {
    "ordinary": ordinary,
    "strange": strange,
    "evil": evil,
    "real": real,
    "single": single,
}
