"""From requests to what the library is asked, and from its answers to JSON."""

from collections.abc import Sequence
from typing import Any

from recfusion.core.errors import InputError
from recfusion.inference.baskets import completing_sets
from recfusion.inference.explanations import Reason
from recfusion.inference.filters import Rules, allowed_items
from recfusion.inference.histories import check_times
from recfusion.inference.new_items import can_add
from recfusion.inference.reranking import Knobs
from recfusion.inference.reverse_steps import reverse_steps
from recfusion.inference.similar import similar_columns
from recfusion.inference.single import Answer, Ask, Had, check_history, history_rows
from recfusion.server import schemas as requests
from recfusion.server.http_errors import Fault, about
from recfusion.server.loaded_models import Served, Shelf
from recfusion.server.service import Scored, Service


def served_for(service: Service, shelf: Shelf, model: str | None, user: str | None = None) -> Served:
    """Return the model of a request."""
    with about("model"):
        return shelf.choose(model, None if user is None else service.place(user))


async def recommend(service: Service, shelf: Shelf, asked: requests.Recommend, prefix: str = "") -> dict[str, Any]:
    """Return one list."""
    try:
        served = served_for(service, shelf, asked.model, asked.user)
        with about("knobs.shares"):
            knobs = Knobs(**asked.knobs.model_dump())
        given = [Had(one.item, one.grade, one.time) for one in asked.history or ()]
        history = service.histories(asked.user, given, served.bundle)
        with about("history"):
            check_history(served.bundle, history)
            check_times(sum(one.time is not None for one in given), len(given))
        ask = Ask(history, asked.k, rules_of(asked), knobs, asked.why)
        found = await service.score(Scored(served, ask))
    except InputError as error:
        raise Fault(422, prefix + _field(served, asked), str(error)) from None
    except Fault as fault:
        raise Fault(fault.status, prefix + fault.field, fault.sentence, fault.headers) from None
    service.metrics.lists.labels(served.label, found.basis).inc()
    if found.unknown:
        service.metrics.unknown.inc(len(found.unknown))
    return _list(served, found) | {"recommendation_id": service.note_shown(served, asked.user)}


async def similar(service: Service, shelf: Shelf, asked: requests.Similar) -> dict[str, Any]:
    """Return items like an item."""
    served = served_for(service, shelf, asked.model)
    if served.bundle.columns_of([asked.item])[0] < 0:
        raise Fault(404, "item", "The model knows no such item.")
    try:
        columns, values = await service.score(
            lambda: similar_columns(served.bundle, asked.item, asked.k, rules_of(asked))
        )
    except InputError as error:
        raise Fault(422, _field(served, asked), str(error)) from None
    return {"model": served.label, "items": _places(served, columns.tolist(), values.tolist())}


async def complete(service: Service, shelf: Shelf, asked: requests.Complete) -> dict[str, Any]:
    """Return alternatives that complete a basket."""
    served = served_for(service, shelf, asked.model)
    bundle = served.bundle
    columns = bundle.columns_of(asked.history)
    if not (columns >= 0).any():
        raise Fault(422, "history", "Expected at least one item that the model knows in the history.")
    basket = history_rows([columns], len(bundle.items))
    try:
        sets = await service.score(
            lambda: completing_sets(
                bundle,
                basket,
                asked.n,
                alternatives=asked.alternatives,
                together=asked.together,
                rules=rules_of(asked),
            )
        )
    except InputError as error:
        raise Fault(422, _field(served, asked), str(error)) from None
    unknown = [text for text, column in zip(asked.history, columns.tolist(), strict=True) if column < 0]
    alternatives = [{"items": _places(served, own.tolist(), scores.tolist())} for own, scores in sets]
    return {"model": served.label, "unknown": unknown, "alternatives": alternatives}


async def steps(service: Service, shelf: Shelf, asked: requests.Steps) -> dict[str, Any]:
    """Return the reverse process on a history."""
    served = served_for(service, shelf, asked.model)
    with about("history"):
        found = await service.score(lambda: reverse_steps(served.bundle, asked.history, asked.steps, asked.seed))
    names = served.bundle.names
    shown = [
        {
            "share": round(step.share, 4),
            "items": [
                {
                    "item": names[dot.column][0],
                    "name": names[dot.column][1],
                    "known": dot.known,
                    "in_history": dot.true,
                    "score": dot.score,
                }
                for dot in step.dots
            ],
        }
        for step in found
    ]
    return {"model": served.label, "steps": shown}


def changed_items(served: Served, ids: Sequence[str], new: Sequence[bool], unknown: Sequence[bool]) -> dict[str, Any]:
    """Return what became of described items: those that are new and in lists from now on, and those that are not."""
    left = [item for item, is_unknown in zip(ids, unknown, strict=True) if is_unknown]
    added = [item for item, was, still in zip(ids, new, unknown, strict=True) if was and not still]
    note = None
    if left and can_add(served.base):
        columns = (
            ", ".join(column.name for column in served.base.recipes.items.columns) if served.base.recipes.items else ""
        )
        note = f"Unknown items have ids of another kind than the model's, or none of its features: describe {columns}."
    elif left:
        note = "The model reads no features of items: unknown ones are kept, and in no list until a model knows them."
    return {"changed": len(ids), "added": added, "unknown": left, "note": note}


def rules_of(asked: requests.Ruled) -> Rules:
    """Return the rules of a request."""
    if isinstance(asked, requests.Recommend):
        return Rules(asked.where, asked.allow, asked.deny, asked.include_seen, asked.at_most)
    return Rules(asked.where, asked.allow, asked.deny)


def _field(served: Served, asked: requests.Ruled) -> str:
    """Return the field that an error is about: the first that is wrong by itself."""
    bundle = served.bundle
    read = {"grades", "times"} & set(bundle.protocol.signals.used)
    if isinstance(asked, requests.Recommend) and asked.knobs.adventurousness and read:
        return "knobs.adventurousness"
    alone: list[tuple[str, Rules]] = [("where", Rules(where=asked.where))]
    if isinstance(asked, requests.Recommend):
        alone += [(f"at_most.{column}", Rules(at_most={column: 1})) for column in asked.at_most]
    alone += [("allow", Rules(allow=asked.allow)), ("deny", Rules(deny=asked.deny))]
    for field, rules in alone:
        try:
            allowed_items(rules, bundle)
        except InputError:
            return field
    if isinstance(asked, requests.Recommend):
        for field, wished in (("wish", asked.knobs.wish), ("shares", asked.knobs.shares)):
            for column, values in wished.items():
                try:
                    table = bundle.categories(column)
                    for value in values:
                        table.number(value)
                except InputError:
                    return f"knobs.{field}.{column}"
    return "where"  # rules that leave nothing together, each of which leaves something


def _list(served: Served, found: Answer) -> dict[str, Any]:
    columns = [place.column for place in found.places]
    items = _places(served, columns, [place.score for place in found.places])
    for shown, place in zip(items, found.places, strict=True):
        shown["because"] = [_reason(reason) for reason in place.because]
        shown["reasons"] = found.reasons
    return {
        "model": served.label,
        "version": served.version,
        "basis": found.basis,
        "unknown": found.unknown,
        "items": items,
    }


def _reason(reason: Reason) -> dict[str, Any]:
    return {"items": list(reason.items), "text": reason.text, "weight": reason.weight}


def _places(served: Served, columns: Sequence[int], scores: Sequence[float]) -> list[dict[str, Any]]:
    return [
        {"rank": rank, "score": score, **served.facts.of(column)}
        for rank, (column, score) in enumerate(zip(columns, scores, strict=True), 1)
    ]
