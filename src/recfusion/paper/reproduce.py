"""`recfusion reproduce`: makes the paper's tables and figures again, and compares them with the published values."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from recfusion.core.jsonl import plain_path
from recfusion.core.steps import log as steps
from recfusion.data.load import load
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.result import is_store
from recfusion.experiments.run import OnEvent, RunSummary, run_experiment
from recfusion.paper import experiments, tables
from recfusion.paper.architecture_figure import architecture_figure
from recfusion.report.figures import SUFFIXES as FIGURE_SUFFIXES
from recfusion.report.figures import save_figure
from recfusion.report.files import SUFFIXES, write_report, write_table
from recfusion.report.formats import Column, Row, Table
from recfusion.report.tables import result_tables

NAMES = ("parameters", "counts", "figure-architecture", "figure-diffusion", *tables.TABLES)
STORE = "results.jsonl"
_FIGURE_DATA = "ml-100k"  # as in the paper
_EPOCHS, _QUICK_EPOCHS = 20, 2
ShowFits: TypeAlias = Callable[[str, Path, str], AbstractContextManager[OnEvent]]  # title, store, metric
_BESIDE = (Column("paper"), Column("ours"), Column("difference", signed=True))


@dataclass(frozen=True)
class Reproduction:
    """The tables of a reproduction, notes on them and on the files written, and the run if it is an experiment."""

    tables: tuple[Table, ...]
    notes: tuple[str, ...]
    run: RunSummary | None = None


def reproduce(
    name: str,
    folder: Path,
    *,
    quick: bool,
    workers: int | None,
    show: ShowFits,
    keep_stale: bool = False,
    splits: int | None = None,
) -> Reproduction:
    """Make one of NAMES and write it to a folder; an experiment resumes from the results in that folder.

    `splits` replaces the number of splits of a table's experiment.
    """
    match name:
        case "parameters":
            return _parameters(folder)
        case "counts":
            return _counts(folder, quick)
        case "figure-architecture" | "figure-diffusion":
            return _figure(name, folder, quick)
    return _experiment(name, folder, quick, workers, show, keep_stale, splits)


def missing(name: str) -> str | None:
    """Return how to get the data that a reproduction needs; None if it is here. Counts need one data set only."""
    needed = {"counts": tuple(tables.COUNTS), "figure-diffusion": (_FIGURE_DATA,)}
    needed |= {name: (table.data,) for name, table in tables.TABLES.items()}
    sentences = [experiments.missing_data(data) for data in needed.get(name, ())]
    return " ".join(filter(None, sentences)) if sentences and all(sentences) else None


def _experiment(
    name: str, folder: Path, quick: bool, workers: int | None, show: ShowFits, keep_stale: bool, splits: int | None
) -> Reproduction:
    experiment = experiments.packaged_experiment(name, quick=quick, splits=splits)
    store = folder / STORE
    siblings = sorted({plain_path(path) for path in folder.absolute().parent.glob(f"*/{STORE}*")})
    others = [other for other in siblings if other != store.absolute() and is_store(other)]
    copied = experiments.copy_results(experiment, store, others)
    with show(f"Running {experiment.name}", store, experiment.metrics[-1]) as on_event:
        run = run_experiment(experiment, store, workers=workers, keep_stale=keep_stale, on_event=on_event)
    if not run.results:
        return Reproduction((), (), run)
    notes = [text for text in (experiments.QUICK_NOTE if quick else None, tables.other_data_note(run.protocol)) if text]
    given = f" --splits {splits}" if splits is not None else " --quick" if quick else ""
    command = f"recfusion reproduce {name}{given}"
    comparison = Comparison.of(run.results, table=name, title=experiment.title, note=" ".join(notes), command=command)
    for suffix in SUFFIXES:
        write_report(comparison, folder / f"{name}{suffix}")
    files = f"Page:   {folder / f'{name}.html'}\nTables: {folder / name}.md, .csv, .tex; box plot: .svg, .png"
    if copied:
        notes.append(f"{copied} fits were copied from other reproductions in {folder.parent}.")
    return Reproduction(tuple(result_tables(comparison)), (*notes, files), run)


def _counts(folder: Path, quick: bool) -> Reproduction:
    splits = experiments.QUICK_SPLITS if quick else experiments.COUNTED_SPLITS
    rows: list[Row] = []
    notes = []
    for name in tables.COUNTS:
        if (sentence := experiments.missing_data(name)) is not None:
            notes.append(f"Left out: {sentence}")
            continue
        steps.info("%s on %d splits", name, splits)
        rows += experiments.count_rows(name, splits=splits)
    columns = (Column("count"), *_BESIDE, Column(f"lowest of {splits} splits"), Column("highest"))
    note = "Every rating counts; ours is the split of seed 0. Validation and test are counted by what a model is shown."
    table = Table("Active users, active items and interactions", columns, tuple(rows), note)
    return _written(table, folder / "counts", notes)


def _parameters(folder: Path) -> Reproduction:
    n_items, found = experiments.parameter_counts()
    published = tables.PARAMETERS
    rows = tuple(
        (name, published.get(name), ours, ours - published[name] if name in published else None)
        for name, ours in sorted(found.items(), key=lambda item: (item[0] not in published, item[1]))
    )
    note = (
        f"Counted on the networks built for the {n_items:,} items of ML-1M with every rating, "
        "with the paper's settings where a model has them."
    )
    return _written(Table("Parameters", (Column("model"), *_BESIDE), rows, note), folder / "parameters")


def _written(table: Table, stem: Path, notes: Sequence[str] = ()) -> Reproduction:
    """Write a table and return it as a reproduction."""
    write_table(table, stem)
    return Reproduction((table,), (f"Table: {stem}.md, .csv, .tex", *notes))


def _figure(name: str, folder: Path, quick: bool) -> Reproduction:
    if name == "figure-architecture":
        figure = architecture_figure()
    else:
        from recfusion.paper.diffusion_figure import diffusion_chains, draw_diffusion  # imports torch

        epochs = _QUICK_EPOCHS if quick else _EPOCHS
        figure = draw_diffusion(diffusion_chains(load(_FIGURE_DATA), epochs=epochs), _FIGURE_DATA, epochs)
    paths = [save_figure(figure, folder / f"{name}{suffix}") for suffix in FIGURE_SUFFIXES]
    return Reproduction((), tuple(f"Figure: {path}" for path in paths))
