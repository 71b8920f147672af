"""`recfusion train`: fit a model and save it as a folder."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Exit, Option

from recfusion.cli.data_options import DataChoice
from recfusion.cli.options import (
    JsonOption,
    SeedOption,
    SetOption,
    TrustOption,
    TuneOption,
    load_bundle,
    parse_settings,
)
from recfusion.cli.output import note, print_json, training, working
from recfusion.cli.request_options import request_options
from recfusion.cli.result_output import print_protocol
from recfusion.core.errors import InputError
from recfusion.core.files import check_replaceable
from recfusion.core.steps import log as steps
from recfusion.data.interactions import Signal
from recfusion.data.options import Preparation, SignalChoice, SplitPlan
from recfusion.data.signals import AUTO, asked_signals, check_signals_are_read, parse_signals, used_signals
from recfusion.experiments import train as job
from recfusion.experiments.candidate import parse_model
from recfusion.experiments.preset import Preset, shop_choices
from recfusion.experiments.recipes import Recipe, train_better
from recfusion.inference.bundle import Bundle
from recfusion.inference.bundle_files import CONFIG, CONTROL
from recfusion.inference.new_items import placement_notes
from recfusion.inference.training_rows import updatable_bytes
from recfusion.models.abilities import needs_validation, planned_parts, signals_read
from recfusion.models.base import Forecast
from recfusion.models.registry import DEFAULT_MODEL
from recfusion.models.thinning.plan import WITHOUT_TORCH
from recfusion.nightly.inputs import read_inputs

OLD_WON = 3  # exit code

_SPLIT_HELP = (
    f"{SplitPlan.model_fields['kind'].description}; by default temporal (per-user temporal) if timestamps are used, "
    "strong otherwise."
)


@request_options
def train(
    choice: DataChoice,
    folder: Annotated[Path, Option("--out", help="Folder for the model.")],
    model: Annotated[str, Argument(help="A model (see `recfusion models`), or file.py:Class.")] = DEFAULT_MODEL,
    signals: Annotated[
        str, Option(help=f"{SignalChoice.model_fields['signals'].description}.", rich_help_panel="Signals")
    ] = AUTO,
    kind: Annotated[
        Literal["strong", "weak", "temporal", "global"] | None,
        Option("--split", help=_SPLIT_HELP, rich_help_panel="Split", show_default=False),
    ] = None,
    settings: SetOption = None,
    tune_trials: TuneOption = None,
    seed: SeedOption = 0,
    all_users: Annotated[bool, Option("--all-users", help="Fit on all users, for production.")] = False,
    evaluate: Annotated[bool, Option("--evaluate", help="Evaluate the settings on the test users, too.")] = False,
    old: Annotated[
        Path | None,
        Option(
            "--keep-if-better",
            metavar="OLD",
            help="Compare with the recipe in this folder and fit the better one; exit code 3 if that is the old one.",
        ),
    ] = None,
    events: Annotated[
        Path | None, Option("--events", help="Add purchases and returns from this file of events that serve wrote.")
    ] = None,
    preset: Annotated[
        Preset,
        Option(
            help="shop: minimum counts of 1 and 2, masked returns, and the signals that the model reads; it tells why."
        ),
    ] = "none",
    trust: TrustOption = None,
    histories: Annotated[
        bool, Option("--histories/--no-histories", help="Whether the model may hold histories of training users.")
    ] = True,
    updatable: Annotated[
        bool,
        Option("--updatable", help="Keep what `recfusion update` needs: the training users' rows, without their ids."),
    ] = False,
    resume: Annotated[bool, Option("--resume", help="Resume an interrupted training.")] = False,
    device: Annotated[str, Option(help="cpu or cuda, for models that train in epochs.")] = "cpu",
    as_json: JsonOption = False,
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
    against = load_bundle(old, trust) if old is not None and old.exists() else None
    reads = signals_read(candidate.model)
    check_signals_are_read(signals, [(candidate.label, reads)])
    if "graded" in parse_signals(signals) and "grades" not in reads:
        note(f"{candidate.label} does not use ratings: low-rated items are only masked; thinning-signals uses them.")
    recipe = Recipe(candidate, choice.preparation, signals, choice.source.feature_columns)
    raw = None
    if old is not None or events is not None or preset == "shop":
        with working(f"Reading {choice.source.label}"):
            raw = read_inputs(choice.source, events).raw
    if raw is not None and preset == "shop":
        changed = {name for name, value in choice.preparation if value != getattr(Preparation(), name)}
        recipe, sentences = shop_choices(recipe, raw, changed)
        note("\n".join(sentences))
    data = choice.load(reads) if raw is None else recipe.prepare(raw)
    used = used_signals(recipe.signals, data, reads)
    plan = job.usual_plan(choice.plan, used) if kind is None else choice.plan
    shape = job.planned_shape(candidate.model, data, recipe.signals)
    if reads:
        _note_signals(data.signals, used, plan)
    with working("Planning the fit"):  # the forecast of a network loads torch
        parts, forecast = planned_parts(candidate.model, shape), candidate.model.forecast(shape)
    if parts:
        note(f"Parts of the mixture: {', '.join(parts)}")
    _note_forecast(forecast)
    if updatable and old is not None:
        raise InputError("Expected --updatable without --keep-if-better: train the chosen recipe with it.", "updatable")
    if updatable:
        job.check_updatable(candidate.model, candidate.label)
        more = updatable_bytes(candidate.model, shape) or 0
        note(f"For updates the folder also keeps about {more / 1e6:,.0f} MB: the rows of {shape.users:,} users")
    shared: dict[str, Any] = {"plan": plan, "seed": seed, "device": device, "histories": histories}
    outcome = None
    try:  # notes are printed after the status line has ended, which would erase them
        title = f"Training {candidate.label} on {data.n_items:,} items of {data.n_users:,} users"
        fits = 1 + (all_users and (evaluate or needs_validation(candidate.model, shape)))
        with training(title, None if forecast.seconds is None else fits * forecast.seconds) as on_epoch:
            shared |= {"all_users": all_users, "checkpoint": checkpoint, "on_epoch": on_epoch}
            if old is not None and raw is not None:
                bundle, outcome = train_better(raw, recipe, against, **shared)
            else:
                bundle = job.train(
                    candidate, data, signals=recipe.signals, judge=evaluate, costs=True, updatable=updatable, **shared
                )
            replaces = folder.exists()
            steps.info("map of the items")
            bundle.save(folder, kept=previous.name if previous else "")
    except KeyboardInterrupt:
        if kept := _kept(checkpoint):
            note(f"The training so far is saved in {kept}: continue with --resume.")
        raise
    if previous and replaces:
        note(f"The previous model is kept in {previous}")
    if outcome is not None:
        note(outcome.sentence())
    if as_json:
        found: dict[str, Any] = {
            "outcome": None if outcome is None else vars(outcome),
            "model": bundle.name,
            "items": len(bundle.items),
        }
        found |= {"train_users": bundle.train_users, "fit_seconds": bundle.fit_seconds, "metrics": bundle.metrics}
        print_json(found | {"protocol": bundle.protocol.document()})
    else:
        _print_metrics(bundle)
    note(f"Trained on {bundle.train_users:,} users in {bundle.fit_seconds:.1f} s; saved to {folder}")
    if outcome is not None and outcome.decision == "old":
        raise Exit(OLD_WON)


def _print_metrics(bundle: Bundle) -> None:
    console = print_protocol(bundle.protocol)
    for users, metrics in bundle.metrics.items():
        for metric, value in () if users.startswith(CONTROL) else metrics.items():
            gain = users == "against"
            console.print(f"{'gain in' if gain else users} {metric}: {100 * value['mean']:{'+' if gain else ''}.2f}")
    for sentence in (*bundle.notes, *placement_notes(bundle)):
        if sentence != WITHOUT_TORCH:  # the fit has logged it
            note(sentence)


def _note_signals(there: Collection[Signal], used: Collection[Signal], plan: SplitPlan) -> None:
    """Print the available and the used signals, and how items are held out."""
    names = {"grades": "ratings or counts", "times": "timestamps", "item_features": "item features"}
    found = ", ".join(names.get(signal, signal) for signal in there) or "no ratings, timestamps or features"
    how = {"temporal": "at the end of each history", "global": "after one moment"}.get(plan.kind, "at random")
    note(f"The data has {found}; --signals {asked_signals(used)} is used, and items are held out {how}")


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
