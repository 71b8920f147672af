"""The model card: what a saved model says of itself, in the layout of Hugging Face's cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recfusion.models.base import setting_values, settings_of
from recfusion.models.registry import entry

if TYPE_CHECKING:
    from recfusion.models.bundle import Bundle


def model_card(bundle: Bundle) -> str:
    """Return the card of a model as Markdown."""
    protocol = bundle.protocol
    title = entry(bundle.name).title
    declared = settings_of(type(bundle.model))
    settings = [f"| {key} | {value} | {declared[key].doc} |" for key, value in setting_values(bundle.model).items()]
    steps = [f"| {s.step} | {s.users:,} | {s.items:,} | {s.interactions:,} |" for s in protocol.steps]
    trained = "all users" if bundle.all_users else f"the training users of split {protocol.split_id(bundle.seed)}"
    return "\n".join(
        [
            "---",
            "library_name: recfusion",
            "tags: [recommendation, implicit-feedback]",
            f"datasets: [{protocol.name}]",
            "---",
            "",
            f"# {bundle.name} on {protocol.name}",
            "",
            f"{title[0].upper()}{title[1:]}. It recommends items to users by "
            "what they already have; users need not have been seen in training.",
            "",
            "## Use",
            "",
            "```python",
            "import recfusion as rf",
            "",
            'bundle = rf.Bundle.load("path/to/this/folder")',
            f'rf.recommend(bundle, {{"somebody": [{", ".join(repr(i) for i in bundle.items["item"][:2].to_list())}]}})',
            "```",
            "",
            "## Data and protocol",
            "",
            f"Trained on {trained} of {protocol.name} ({protocol.users:,} users, {protocol.items:,} items, "
            f"{protocol.interactions:,} interactions after preparation; protocol {protocol.hash}).",
            "",
            *[f"{number}. {sentence}" for number, sentence in enumerate(protocol.assumptions(), 1)],
            "",
            "| step | users | items | interactions |",
            "|---|---:|---:|---:|",
            *steps,
            "",
            *([f"Licence of the data: {protocol.licence}", ""] if protocol.licence else []),
            *([f"Citation: {protocol.citation}", ""] if protocol.citation else []),
            "## Settings",
            "",
            *(["| setting | value | meaning |", "|---|---|---|", *settings] if settings else ["It has none."]),
            "",
            f"{bundle.model.n_parameters:,} numbers learned in {bundle.fit_seconds:.1f} seconds.",
            "",
            "## Results",
            "",
            *_results(bundle),
            "",
            "## Limitations",
            "",
            "It knows only which items users had, not why; it repeats the habits and the popularity bias of its data. "
            "Items with no interaction in training cannot be recommended on merit, and a user without any known item "
            "gets the most popular ones.",
            "",
        ]
    )


def _results(bundle: Bundle) -> list[str]:
    if not bundle.metrics:
        return ["Not evaluated: it was trained on all users." if bundle.all_users else "Not evaluated yet."]
    lines = ["| users | metric | mean | 95 % interval over users |", "|---|---|---:|---:|"]
    for fold, metrics in bundle.metrics.items():
        for metric, value in metrics.items():
            interval = value.get("ci95")
            shown = f"{interval[0]:.4f} to {interval[1]:.4f}" if interval else ""
            lines.append(f"| {fold} | {metric} | {value['mean']:.4f} | {shown} |")
    return lines
