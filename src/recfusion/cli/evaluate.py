"""`recfusion evaluate`: evaluate a saved model on the test users of its split."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from recfusion.cli.options import JsonOption, TrustOption, trusted_classes
from recfusion.cli.output import note, print_json, print_protocol, working
from recfusion.core.errors import InputError
from recfusion.experiments.train import evaluate_bundle
from recfusion.inference.bundle import Bundle


def evaluate(
    folder: Annotated[Path, Argument(help="A model folder.")],
    data: Annotated[str | None, Option(help="New place of the same data, if it has moved.")] = None,
    users_file: Annotated[
        str | None,
        Option(help="New place of the file of users, if it has moved; for models with user features."),
    ] = None,
    trust: TrustOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a saved model on the test users of its split, rebuilt from its protocol; other data is refused."""
    bundle = Bundle.load(folder, trust=trusted_classes(trust))
    source = bundle.protocol.source if data is None else bundle.protocol.source.moved_to(data)
    if users_file is not None:
        if "user_features" not in bundle.protocol.signals.used:
            raise InputError("This model reads no user features: leave out --users-file.", "users_file")
        source = source.model_copy(update={"users_file": users_file})
    split = bundle.protocol.split_id(bundle.seed)
    with working(f"Evaluating {bundle.name} on the test users of split {split}"):
        metrics = evaluate_bundle(bundle, source)
    if as_json:
        print_json({"protocol": bundle.protocol.document(), "split": split, "models": {bundle.name: metrics}})
    else:
        console = print_protocol(bundle.protocol)
        for metric, value in metrics.items():
            ends = value.get("ci95")
            interval = f" ({100 * ends[0]:.2f} to {100 * ends[1]:.2f})" if ends else ""
            console.print(f"test {metric}: {100 * value['mean']:.2f}{interval}")
    try:
        replace(bundle, metrics=bundle.metrics | {"test": metrics}).save(folder)
    except InputError as error:
        note(f"The results were not added to the model folder: {error}")
