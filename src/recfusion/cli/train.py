"""`recfusion train`: fit a model and save it as a folder."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from recfusion.cli.options import (
    DataChoice,
    SeedOption,
    SetOption,
    TrustOption,
    TuneOption,
    data_options,
    parse_settings,
    trusted_classes,
)
from recfusion.cli.output import note, print_protocol, training
from recfusion.core.errors import InputError
from recfusion.core.files import check_replaceable
from recfusion.data.signals import parse_signals
from recfusion.experiments import train as job
from recfusion.experiments.candidate import parse_model
from recfusion.inference.bundle import Bundle
from recfusion.inference.bundle_files import CONFIG
from recfusion.models.abilities import signals_read
from recfusion.models.base import Forecast
from recfusion.models.registry import DEFAULT_MODEL


@data_options
def train(
    choice: DataChoice,
    folder: Annotated[Path, Option("--out", help="Folder for the model.")],
    model: Annotated[str, Argument(help="A model (see `recfusion models`), or file.py:Class.")] = DEFAULT_MODEL,
    settings: SetOption = None,
    tune_trials: TuneOption = None,
    seed: SeedOption = 0,
    all_users: Annotated[bool, Option("--all-users", help="Fit on all users, for production.")] = False,
    evaluate: Annotated[bool, Option("--evaluate", help="Evaluate the settings on the test users, too.")] = False,
    judge: Annotated[bool, Option("--judge", hidden=True)] = False,  # the old name of --evaluate
    old: Annotated[
        Path | None,
        Option("--keep-if-better", metavar="OLD", help="Save only if the model beats that in this folder."),
    ] = None,
    trust: TrustOption = None,
    histories: Annotated[
        bool, Option("--histories/--no-histories", help="Whether the model may hold histories of training users.")
    ] = True,
    resume: Annotated[bool, Option("--resume", help="Resume an interrupted training.")] = False,
    device: Annotated[str, Option(help="cpu or cuda, for models that train in epochs.")] = "cpu",
) -> None:
    """Train a model on the training users of a data set and save it as a folder."""
    candidate = parse_model(model, parse_settings(settings), tune_trials)  # a wrong one should not wait for the data
    check_replaceable(folder, CONFIG)
    previous = None if old is None else folder.with_name(f"{folder.name}.previous")
    if previous:
        check_replaceable(previous, CONFIG)
    checkpoint = folder.with_name(f"{folder.name}.checkpoint")
    if (kept := _kept(checkpoint)) and not resume:
        raise InputError(f"An interrupted training is saved in '{kept}': add --resume, or remove it.", "resume")
    against = None if old is None else Bundle.load(old, trust=trusted_classes(trust))
    if "graded" in parse_signals(choice.signals) and "grades" not in signals_read(candidate.model):
        note(f"{candidate.label} does not use ratings: low-rated items are only masked; thinning-signals uses them.")
    data = choice.load()
    _note_forecast(job.forecast(candidate.model, data, choice.signals))
    with training(f"Training {candidate.label} on {data.n_items:,} items of {data.n_users:,} users") as on_epoch:
        try:
            bundle = job.train(
                candidate,
                data,
                plan=choice.plan,
                seed=seed,
                all_users=all_users,
                device=device,
                histories=histories,
                signals=choice.signals,
                judge=evaluate or judge,
                against=against,
                checkpoint=checkpoint,
                on_epoch=on_epoch,
            )
        except KeyboardInterrupt:
            if kept := _kept(checkpoint):
                note(f"The training so far is saved in {kept}: continue with --resume.")
            raise
        except job.OldIsBetter as worse:
            note(f"{worse}: {folder} is unchanged.")
            raise Exit from None
    replaces = folder.exists()
    bundle.save(folder, kept=previous.name if previous else "")
    if previous and replaces:
        note(f"The previous model is kept in {previous}")
    console = print_protocol(bundle.protocol)
    for users, metrics in bundle.metrics.items():
        for metric, value in metrics.items():
            gain = users == "against"
            console.print(f"{'gain in' if gain else users} {metric}: {100 * value['mean']:{'+' if gain else ''}.2f}")
    note(f"Trained on {bundle.train_users:,} users in {bundle.fit_seconds:.1f} s; saved to {folder}")


def _note_forecast(expected: Forecast) -> None:
    """Print the forecast time and memory of a fit, if known."""
    parts = []
    if expected.seconds is not None:
        parts.append(f"{expected.seconds:.{1 if expected.seconds < 10 else 0}f} s on a free core")
    if expected.bytes is not None:
        parts.append(f"{expected.bytes / 1e9:.1f} GB of memory")
    if parts:
        note(f"Forecast of the fit: about {' and '.join(parts)}")


def _kept(checkpoint: Path) -> Path | None:
    """Return a file of an interrupted training, if there is one; each part of a mixture has its own."""
    return next(iter(sorted(checkpoint.parent.glob(f"{checkpoint.name}*"))), None)
