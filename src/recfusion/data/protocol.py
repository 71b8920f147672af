"""The protocol card: which data, preparation, split, signals and metrics a result comes from, and their hash."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from recfusion.core.errors import InputError, validating
from recfusion.data.interactions import Interactions, PreparationStep, ReadReport, Signal
from recfusion.data.options import Preparation, Source, SplitPlan
from recfusion.data.split import Split


class Signals(BaseModel, frozen=True, extra="forbid"):
    """The signals that the data has, and those that were used."""

    exist: tuple[Signal, ...] = ()
    used: tuple[Signal, ...] = ()
    digest: str = ""  # of those used


class Protocol(BaseModel, frozen=True, extra="forbid"):
    """Everything that makes results comparable, except the seed: results with equal hashes fit in one table."""

    source: Source
    preparation: Preparation
    plan: SplitPlan
    metrics: tuple[str, ...]
    name: str
    fingerprint: str
    users: int
    items: int
    interactions: int
    read: ReadReport
    steps: tuple[PreparationStep, ...]
    licence: str = ""
    citation: str = ""
    signals: Signals = Signals()
    parts: str = ""  # digest of the parts of a given split
    rules: dict[str, Any] = {}  # filters and re-ranking weights of the lists of test users
    hash: str = ""

    @classmethod
    def of(
        cls,
        data: Interactions,
        plan: SplitPlan,
        metrics: tuple[str, ...],
        used: tuple[Signal, ...] = (),
        rules: Mapping[str, Any] | None = None,
    ) -> "Protocol":
        """Return the card of prepared data; its hash covers data, preparation, split, metrics and signals `used`."""
        card = cls(
            source=data.source,
            preparation=data.preparation,
            plan=plan,
            metrics=metrics,
            name=data.name,
            fingerprint=data.fingerprint,
            users=data.n_users,
            items=data.n_items,
            interactions=data.n_interactions,
            read=data.report,
            steps=data.steps,
            licence=data.licence,
            citation=data.citation,
            signals=Signals(exist=data.signals, used=used, digest=data.digest(used)),
            parts="" if data.parts is None or plan.kind != "given" else _digest_of(data.parts.tobytes()),
            rules=dict(rules or {}),
        )
        return card.model_copy(update={"hash": card._digest()})

    @classmethod
    def parse(cls, document: object, where: str) -> "Protocol":
        """Return the card that `document` (from JSON) holds."""
        with validating(f"a protocol card in '{where}'"):
            card = cls.model_validate(document)
        if card.hash != card._digest():
            raise InputError(
                f"The protocol card in '{where}' does not fit its hash {card.hash}: it was edited by hand; "
                "create the result again."
            )
        return card

    def _digest(self) -> str:
        covered: dict[str, Any] = {
            "data": self.fingerprint,
            "preparation": self.preparation.model_dump(mode="json"),
            "split": self.plan.covered(),
            "metrics": sorted(self.metrics),
        }
        if self.signals.used:  # else the hash equals that of results from before signals existed
            covered["signals"] = [*sorted(self.signals.used), self.signals.digest]
        if self.parts:
            covered["parts"] = self.parts
        if self.rules:
            covered["rules"] = self.rules
        return _digest_of(json.dumps(covered, sort_keys=True).encode())

    def document(self) -> dict[str, Any]:
        """Return the card as plain JSON data."""
        return self.model_dump(mode="json")

    def split_id(self, seed: int) -> str:
        """Return the name of one split under this protocol."""
        return f"{self.hash}-{seed}"

    def assumptions(self) -> list[str]:
        """Return the paper's six assumptions as they apply here, one sentence each."""
        plan, chosen = self.plan, self.preparation
        liked = "every row" if chosen.min_rating is None else f"a rating of at least {float(chosen.min_rating):g}"
        orders = {
            "temporal": "per-user temporal: the end of each held-out history is predicted; training has all times",
            "global": "histories end at one moment, and later items are predicted",
            "leave-one-out": "the last items of histories are held out, at random in data without times",
            "given": "histories are unordered sets, divided by the files",
        }
        order = orders.get(plan.kind, "histories are unordered sets, divided at random")
        filters = "repeated until stable (k-core)" if chosen.k_core else "one pass, users first"
        graded = "grades" in self.signals.used
        seen = "A 0 may be a dislike or an item never seen; the two are not distinguished."
        if graded:
            seen = "Ratings below that are dislikes: such items are never recommended if they are shown."
        if self.signals.used:
            seen += f" Signals used: {', '.join(self.signals.used)}."
        return [
            f"Top-K: lists are judged by {', '.join(self.metrics)}; items in the history are never recommended.",
            f"Binary feedback: {liked} counts as 1, everything else as 0.",
            seen,
            f"Order: {order}.",
            f"Filters: users with at least {chosen.min_items_per_user} items, items with at least "
            f"{chosen.min_users_per_item} users, {filters}.",
            _generalization(plan),
            *([f"Rules: the lists of test users are made with {json.dumps(self.rules)}."] if self.rules else []),
        ]


def _digest_of(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=6).hexdigest()


def check_same_protocol(hashes: dict[str, str]) -> None:
    """Raise if results have different protocols; `hashes` maps a result to its hash."""
    if len(set(hashes.values())) > 1:
        listed = ", ".join(f"{name}: {digest}" for name, digest in hashes.items())
        raise InputError(
            f"Results of different protocols cannot stand in one table ({listed}): "
            "run the models again on the same data, preparation, split and metrics, or show one experiment alone."
        )


def check_same_data(protocol: Protocol, data: Interactions, of: str) -> None:
    """Raise unless this is the data of a protocol; `of` says what was made from it."""
    if data.fingerprint != protocol.fingerprint:
        raise InputError(
            f"Expected the data {of} ({protocol.name}: {protocol.users:,} users, {protocol.items:,} items, "
            f"{protocol.interactions:,} interactions), got other data ({data.name}: {data.n_users:,}, "
            f"{data.n_items:,}, {data.n_interactions:,}): name the original with --data.",
            "data",
        )


def split_counts(split: Split) -> dict[str, dict[str, int]]:
    """Return users, active items and interactions of each part, counted as in the paper (folds: only the history)."""
    parts = {"train": split.train, "valid": split.valid.history, "test": split.test.history}
    return {
        part: {"users": int(m.shape[0]), "items": len(set(m.indices.tolist())), "interactions": int(m.nnz)}
        for part, m in parts.items()
    }


def _generalization(plan: SplitPlan) -> str:
    train = 1 - plan.valid - plan.test
    shares = f"{train:.0%} / {plan.valid:.0%} / {plan.test:.0%}"
    if plan.kind == "weak":
        return (
            f"Weak generalization: each history is divided {shares} into training, validation and test; the test shows "
            "training and validation items."
        )
    if plan.kind == "global":
        return (
            f"Two moments divide all interactions {shares} into training, validation and test: the model learns from "
            "the first part, and is shown everything before the part that it is evaluated on. The seed is not used."
        )
    if plan.kind == "leave-one-out":
        return (
            "Leave one out: one item of every user with at least three is tested and one validates; all others are "
            "training items. The test shows training and validation items."
        )
    if plan.kind == "given":
        return (
            "Given split: the pairs of a training, a test and perhaps a validation file. Without validation pairs, "
            f"settings are chosen on a random {plan.valid:.0%} of each training history, and the model is then fitted "
            "on the whole training file. All known items of a test user are shown."
        )
    if plan.cold_items:
        return (
            f"New items: {plan.cold_items:.0%} of the items, drawn at random, are removed from training and all "
            f"histories. Users are divided {shares}; the model is shown all other items of a test user, and must find "
            "these among all items."
        )
    return (
        f"Strong generalization: users are divided {shares}; the model is shown {plan.fold_in:.0%} of the history of a "
        "validation or test user, and must find the rest."
    )
