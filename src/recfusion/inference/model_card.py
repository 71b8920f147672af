"""The model card of a saved model, in the layout of Hugging Face's cards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from recfusion.data.protocol import Protocol
from recfusion.inference.bundle_files import CONTROL
from recfusion.models.abilities import keeps_histories
from recfusion.models.settings import setting_values, settings_of

if TYPE_CHECKING:
    from recfusion.inference.bundle import Bundle

WATTS = 15.0  # assumed power of one busy core with its share of the machine
_HOLDS_ROWS = (
    "**It holds rows of the training data: the items of single users, without user ids.** Treat the folder like the "
    "data, or train with `--no-histories`. "
)
_UPDATABLE = (
    "**The file training.safetensors holds the items of the training users, by keyed digests of their ids**, so that "
    "they can be changed or forgotten. Treat it like the data. "
)


def model_card(bundle: Bundle) -> str:
    """Return the card of a model as Markdown with a YAML header."""
    title = bundle.entry.title
    watt_hours = bundle.fit_seconds * WATTS / 3600
    energy = f"{watt_hours / 1000:.3g} kWh" if watt_hours >= 1000 else f"{watt_hours:.2g} Wh"
    some = ", ".join(repr(item) for item in bundle.items["item"][:2].to_list())
    sections = {
        "Intended use": [
            f"It ranks its {len(bundle.items):,} items for a user by the items of that user's history; users need not "
            "have been seen in training. It is meant for research and for comparing models under a stated protocol. It "
            "is not meant for decisions about people, and it does not filter unsuitable items.",
        ],
        "How to load and use it": [
            "```python",
            "import recfusion as rf",
            "",
            'bundle = rf.Bundle.load("path/to/this/folder")',
            f'rf.recommend(bundle, {{"somebody": [{some}]}})',
            "```",
            "",
            "On the command line: `recfusion recommend path/to/this/folder --history ITEM,ITEM`, and "
            "`recfusion evaluate path/to/this/folder` to evaluate it on its test users.",
        ],
        "Data and protocol": _data(bundle),
        "Results": _results(bundle),
        **({"Updates since the last full fit": _updates(bundle)} if bundle.updates else {}),
        "Parameters and settings": _settings(bundle),
        "Training time and energy": [
            f"The fit took {bundle.fit_seconds:,.1f} seconds. That is about {energy}, **assuming** {WATTS:g} W for one "
            "busy core with its share of the machine; nothing was measured. A fit on several cores takes that many "
            "times more, and earlier trials are not counted.",
        ],
        "Limitations": [
            (_HOLDS_ROWS if keeps_histories(bundle.model) else "")
            + ("" if bundle.training is None else _UPDATABLE)
            + "It only knows which items users had, not why; it repeats the habits and the popularity bias of its "
            "data. Items with no interaction in training cannot be recommended on merit"
            + (" except by their features" if bundle.recipes.items is not None else "")
            + ". Users with no known items get the most popular ones. Results on users of another time, place or shop "
            "will differ.",
        ],
        "Licence of the data": _licence(bundle.protocol),
    }
    body = [line for heading, lines in sections.items() for line in ("", f"## {heading}", "", *lines)]
    head = [f"# {bundle.name} on {bundle.protocol.name}", "", f"{title[0].upper()}{title[1:]}."]
    return "\n".join([*_front_matter(bundle), *head, *body]) + "\n"


def _front_matter(bundle: Bundle) -> list[str]:
    """Return the YAML header for model catalogs; names are quoted as in JSON, which is valid YAML."""
    protocol = bundle.protocol
    kinds = dict.fromkeys(metric.partition("@")[0] for metric in protocol.metrics)
    terms = ["license: other", "license_name: terms-of-the-data"] if protocol.licence else ["license: unknown"]
    return [
        "---",
        "library_name: recfusion",
        *terms,
        "tags:",
        *(f"- {tag}" for tag in ("recommendation", "collaborative-filtering", "implicit-feedback", bundle.name)),
        "datasets:",
        f"- {json.dumps(protocol.name, ensure_ascii=False)}",
        "metrics:",
        *(f"- {kind}" for kind in kinds),
        "---",
        "",
    ]


def _data(bundle: Bundle) -> list[str]:
    protocol = bundle.protocol
    trained = "all users" if bundle.all_users else f"the training users of split {protocol.split_id(bundle.seed)}"
    if bundle.train_users:
        trained = f"{bundle.train_users:,} users, {trained}"
    return [
        f"Trained on {trained} of {protocol.name} ({protocol.users:,} users, {protocol.items:,} items, "
        f"{protocol.interactions:,} interactions after preparation; protocol {protocol.hash}, seed {bundle.seed}).",
        "",
        *(f"{number}. {sentence}" for number, sentence in enumerate(protocol.assumptions(), 1)),
        "",
        "| step | users | items | interactions |",
        "|---|---:|---:|---:|",
        *(f"| {step.step} | {step.users:,} | {step.items:,} | {step.interactions:,} |" for step in protocol.steps),
    ]


def _results(bundle: Bundle) -> list[str]:
    if not bundle.metrics:
        return ["Not evaluated: it was trained on all users." if bundle.all_users else "Not evaluated yet."]
    lines = ["| users | metric | mean | 95 % interval over users |", "|---|---|---:|---:|"]
    for fold, metrics in bundle.metrics.items():
        if fold.startswith(CONTROL):
            continue
        users = {"against": "test, gain over the older recipe"}.get(fold, fold)
        for metric, value in metrics.items():
            interval = value.get("ci95")
            shown = f"{interval[0]:.4f} to {interval[1]:.4f}" if interval else ""
            lines.append(f"| {users} | {metric} | {value['mean']:.4f} | {shown} |")
    if bundle.all_users:
        lines += ["", "The recipe was evaluated on these users after a fit on a split, then fitted again on all users."]
    elif "test" not in bundle.metrics:
        note = "Settings and epochs may have been chosen on these users: results on others will be slightly lower."
        lines += ["", note]
    return lines


def _updates(bundle: Bundle) -> list[str]:
    """Return what updates changed: counts and days, never users."""
    errors = ("not tested" if one.error is None else f"{one.error:.1e}" for one in bundle.updates)
    rows = [
        f"| {one.day} | {one.added:,} | {one.changed:,} | {one.forgotten:,} | {one.new_items:,} | {error} |"
        for one, error in zip(bundle.updates, errors, strict=True)
    ]
    inexact = "" if all(one.exact for one in bundle.updates) else " Some parts were updated approximately."
    return [
        "The weights equal those of a fit on the users that remain, with the settings, the weights of users and the "
        f"mean popularity of the last full fit.{inexact} The results above are those of that fit. The error is that of "
        "the last certificate, in standard deviations of a list's scores.",
        "",
        "| day (UTC) | users added | changed | forgotten | new items | error |",
        "|---|---:|---:|---:|---:|---:|",
        *rows,
        *(f"\n{sentence}" for sentence in dict.fromkeys(note for one in bundle.updates for note in one.notes)),
    ]


def _settings(bundle: Bundle) -> list[str]:
    declared = settings_of(type(bundle.model))
    chosen = bundle.model.chosen()
    values = setting_values(bundle.model) | chosen
    learned = f"{bundle.model.n_parameters:,} numbers were learned."
    if not values:
        return [learned, "", "It has no settings."]
    shown = {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in values.items()}
    by = dict.fromkeys(values, "given or default")
    by |= dict.fromkeys(bundle.searched, "search") | dict.fromkeys(chosen, "fit")
    note = "The fit chose none of the settings."
    if chosen:
        note = (
            "The fit chose on validation users, or on training users that it left out in turn; with too few of them it "
            "uses the value in the column `meaning`."
        )
    if bundle.searched:
        where = " of a split, before the fit on all users" if bundle.all_users else ""
        note += f" A search chose on the validation users{where}."
    return [
        f"{learned} {note}",
        "",
        *(f"- {sentence}" for sentence in bundle.notes),
        *([""] if bundle.notes else []),
        "| setting | value | chosen by | meaning |",
        "|---|---|---|---|",
        *(f"| {key} | {shown[key]} | {by[key]} | {declared[key].doc} |" for key in values),
    ]


def _licence(protocol: Protocol) -> list[str]:
    if not protocol.licence:
        return ["Unknown: the data is the user's own file. recfusion itself is under the MIT licence."]
    lines = [f"{protocol.licence} A model learned from the data may be bound by its terms; recfusion itself is MIT."]
    return [*lines, *(["", f"Citation: {protocol.citation}"] if protocol.citation else [])]
