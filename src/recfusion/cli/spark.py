"""`recfusion spark`: prepare, train and recommend on a Spark cluster."""

from pathlib import Path
from shutil import rmtree
from typing import Annotated

from typer import Argument, Option

from recfusion.cli.data_options import DataChoice
from recfusion.cli.options import (
    SeedOption,
    SetOption,
    TrustOption,
    TuneOption,
    load_bundle,
    parse_settings,
)
from recfusion.cli.output import counted, if_stopped, note, progress, training
from recfusion.cli.recommend import note_left_out, time_column
from recfusion.cli.request_options import request_options, source_options
from recfusion.cli.result_output import print_prepared
from recfusion.cli.tune import ConfOption, MasterOption, start_spark
from recfusion.core.errors import InputError
from recfusion.core.files import check_replaceable, check_writable
from recfusion.core.job_folder import JOB
from recfusion.data.catalog import CATALOG
from recfusion.data.options import SignalChoice, Source, SplitPlan
from recfusion.experiments import train as job
from recfusion.experiments.candidate import parse_model
from recfusion.inference.bundle_files import CONFIG
from recfusion.models.thinning.local import ThinningLocal
from recfusion.spark import check_path

SOLVED = "thinning-local"


@request_options
def spark_prepare(
    choice: DataChoice,
    folder: Annotated[Path, Option("--out", help="Folder for the prepared data, to use with --data.")],
    parts: Annotated[
        int | None, Option(help="Number of Parquet files to write; default: one per bucket of users.", min=1)
    ] = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Prepare a CSV or Parquet table, or a folder of them, as a Spark job.

    The folder loads as the same data that `recfusion data prepare` gives. The same command resumes an interrupted job.
    """
    if choice.source.data in CATALOG:
        raise InputError(
            f"'{choice.source.data}' is prepared as it is read: name a CSV or Parquet file with --data.", "data"
        )
    if choice.plan != SplitPlan() or choice.used != SignalChoice():
        raise InputError("Data is split when it is used: leave out the split and signal options here.")
    _check_paths(choice.source.data, folder)
    session = start_spark(master, conf)
    from recfusion.spark import prepare as spark

    with if_stopped("What is done is kept"), session:
        fresh = spark.spark_prepare(session, choice.source, choice.preparation, folder, parts=parts)
    print_prepared(folder, fresh)


@request_options
def spark_train(
    choice: DataChoice,
    folder: Annotated[Path, Option("--out", help="Folder for the model.")],
    model: Annotated[str, Argument(help="thinning-local, the only model that Spark can train.")] = SOLVED,
    settings: SetOption = None,
    tune_trials: TuneOption = None,
    seed: SeedOption = 0,
    all_users: Annotated[bool, Option("--all-users", help="Train on every user, for production.")] = False,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Train thinning-local with Spark tasks, and save it as an ordinary model folder.

    The same command resumes an interrupted job.
    """
    if model != SOLVED:
        raise InputError(f"Expected {SOLVED}, the model that Spark can solve in parts, got '{model}': use `train`.")
    candidate = parse_model(model, parse_settings(settings), tune_trials)
    check_replaceable(folder, CONFIG)
    stages = folder.with_name(f"{folder.name}.stages")
    check_writable(stages)
    data = choice.load()
    session = start_spark(master, conf)
    from recfusion.spark.train import SparkSolver

    with if_stopped(f"What is solved is kept in {stages}"), session, training(f"Training {model}") as on_epoch:
        assert isinstance(candidate.model, ThinningLocal)
        candidate.model.solver = SparkSolver(session, stages)
        bundle = job.train(
            *(candidate, data),
            plan=choice.plan,
            seed=seed,
            all_users=all_users,
            signals=choice.signals,
            on_epoch=on_epoch,
        )
    bundle.save(folder)
    rmtree(stages, ignore_errors=True)
    note(f"Trained on {bundle.train_users:,} users in {bundle.fit_seconds:.1f} s; saved to {folder}")


@source_options("user", "item", "rating", "time", "separator", "max_bad_share", panel="File of histories")
def spark_recommend(
    model: Annotated[Path, Argument(help="A model folder.")],
    source: Source,
    folder: Annotated[Path, Option("--out", help="Folder for the lists, as Parquet.")],
    histories: Annotated[Path, Option(help="CSV or Parquet file or folder with one row per user and item.")],
    k: Annotated[int, Option("-k", help="Length of the lists.", min=1)] = 10,
    chunks: Annotated[int, Option(help="Number of parts; finished parts are kept after an interruption.", min=1)] = 8,
    trust: TrustOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Write the top K items of every user of a table as a Spark job; resumes after an interruption."""
    _check_paths(str(histories), folder)
    protocol = load_bundle(model, trust).protocol
    threshold = protocol.preparation.min_rating
    times = time_column(source.time, reads_times="times" in protocol.signals.used)
    source = source.model_copy(update={"data": str(histories), "time": times})
    session = start_spark(master, conf)
    from recfusion.spark import recommend as spark

    with if_stopped("What is done is kept"), session, progress("Recommending", chunks) as advance:
        found, before = spark.ListCounts(), 0
        for done, found in spark.spark_recommend(session, model, source, folder, k=k, chunks=chunks, trust=trust or ()):
            advance(f"{found.users:,} users", done - before)
            before = done
    note_left_out(found.unknown, found.empty, found.bad, found.disliked, threshold)
    note(f"{counted(found.users, 'list')} of up to {k} items written to {folder}")


def _check_paths(source: str, folder: Path) -> None:
    """Raise if a job could not read or write, before Spark starts, which takes seconds."""
    check_path(source)
    if not Path(source).exists():
        raise InputError(f"Expected a file or folder at '{source}', got nothing: check the path.")
    check_replaceable(folder, JOB)
