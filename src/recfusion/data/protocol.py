"""The protocol card: in words and numbers, how the data and the split of a result came to be."""

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions, PreparationStep, ReadReport, Signal
from recfusion.data.settings import Preparation, Source, SplitPlan
from recfusion.data.split import Split


class Signals(BaseModel):
    """What the data has beside its ones, and what of it was learned from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    exist: tuple[Signal, ...] = ()
    used: tuple[Signal, ...] = ()
    digest: str = ""  # of those used


class Protocol(BaseModel):
    """Everything that makes results comparable, but not the seed: equal hashes may stand in one table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    hash: str = ""

    @classmethod
    def of(
        cls, data: Interactions, plan: SplitPlan, metrics: tuple[str, ...], used: tuple[Signal, ...] = ()
    ) -> "Protocol":
        """Return the card of prepared data; its hash covers data, preparation, ratios, metrics and signals `used`."""
        signals = Signals(exist=data.signals, used=used, digest=data.digest(used))
        return cls(
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
            signals=signals,
            hash=_digest(data.fingerprint, data.preparation, plan, metrics, signals),
        )

    @classmethod
    def parse(cls, document: object, where: str) -> "Protocol":
        """Return the card that `document` (from JSON) holds."""
        try:
            card = cls.model_validate(document)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise InputError(f"Expected a protocol card in '{where}': {place or 'document'}: {first['msg']}.") from None
        if card.hash != _digest(card.fingerprint, card.preparation, card.plan, card.metrics, card.signals):
            raise InputError(
                f"The protocol card in '{where}' does not fit its hash {card.hash}: it was changed by hand; "
                "make the result again."
            )
        return card

    def document(self) -> dict[str, Any]:
        """Return the card as plain JSON data."""
        return self.model_dump(mode="json")

    def split_id(self, seed: int) -> str:
        """Return the name of one split under this protocol."""
        return f"{self.hash}-{seed}"

    def assumptions(self) -> list[str]:
        """Return the paper's six assumptions as they hold here, a sentence each."""
        plan, chosen = self.plan, self.preparation
        liked = "every row" if chosen.min_rating is None else f"a rating of at least {float(chosen.min_rating):g}"
        order = (
            "the last part of a held-out history is predicted"
            if plan.kind == "temporal"
            else "histories are unordered sets, divided at random"
        )
        filters = "repeated until stable (k-core)" if chosen.k_core else "one pass, users first"
        return [
            f"Top-K: lists are judged by {', '.join(self.metrics)}; items in the history are never recommended.",
            f"Binary feedback: {liked} counts as 1, everything else as 0.",
            "A 0 may be a dislike or an item never seen; the two are not told apart.",
            f"Order: {order}.",
            f"Filters: users with at least {chosen.min_items_per_user} items, items with at least "
            f"{chosen.min_users_per_item} users, {filters}.",
            _generalization(plan),
        ]


def check_same_protocol(hashes: dict[str, str]) -> None:
    """Raise where results of different protocols would stand in one table; `hashes` maps a result to its hash."""
    if len(set(hashes.values())) > 1:
        listed = ", ".join(f"{name}: {digest}" for name, digest in hashes.items())
        raise InputError(
            f"Results of different protocols cannot stand in one table ({listed}): "
            "run the models again on the same data, preparation, split and metrics, or show one experiment alone."
        )


def split_counts(split: Split) -> dict[str, dict[str, int]]:
    """Return users, active items and interactions of each part, counted as in the paper (folds: the history alone)."""
    parts = {"train": split.train, "valid": split.valid.history, "test": split.test.history}
    return {
        part: {
            "users": int(matrix.shape[0]),
            "items": len(set(matrix.indices.tolist())),
            "interactions": int(matrix.nnz),
        }
        for part, matrix in parts.items()
    }


def _digest(
    fingerprint: str, preparation: Preparation, plan: SplitPlan, metrics: tuple[str, ...], signals: Signals
) -> str:
    covered: dict[str, Any] = {
        "data": fingerprint,
        "preparation": preparation.model_dump(mode="json"),
        "split": plan.model_dump(mode="json"),
        "metrics": sorted(metrics),
    }
    if signals.used:  # else the hash is that of results from before there were any
        covered["signals"] = [*sorted(signals.used), signals.digest]
    return hashlib.blake2b(json.dumps(covered, sort_keys=True).encode(), digest_size=6).hexdigest()


def _generalization(plan: SplitPlan) -> str:
    train = 1 - plan.valid - plan.test
    shares = f"{train:.0%} / {plan.valid:.0%} / {plan.test:.0%}"
    if plan.kind == "weak":
        return f"Weak generalization: each history is divided {shares} into training, validation and test."
    return (
        f"Strong generalization: users are divided {shares}; of a validation or test user the model is shown "
        f"{plan.fold_in:.0%} of the history and must find the rest."
    )
