"""`recfusion reproduce`: the paper's tables and figures, made again and set beside the paper's own numbers."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

from rich.table import Column as Head
from rich.table import Table as Shown
from typer import Argument, Exit, Option

from recfusion.cli.figure import save, train_and_draw, train_schedules
from recfusion.cli.options import WorkersOption
from recfusion.cli.output import note, out, print_protocol, working
from recfusion.cli.report import SUFFIXES, write_as, write_text
from recfusion.cli.run import KeepStaleOption, leave_on_failures, shown
from recfusion.core.errors import InputError, choices
from recfusion.core.files import check_writable
from recfusion.core.jsonl import plain_path
from recfusion.data.load import load
from recfusion.data.options import SplitPlan
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.result import is_store
from recfusion.experiments.run import run_experiment
from recfusion.paper import experiments, tables
from recfusion.paper.architecture_figure import draw_architecture, recfusion_family
from recfusion.report.figures import SUFFIXES as FIGURE_SUFFIXES
from recfusion.report.formats import Column, Table, csv_text, latex, markdown
from recfusion.report.tables import result_tables

ALL = "all"
STORE = "results.jsonl"
_FIGURE_DATA, _FIGURE_EPOCHS = "ml-100k", 20  # the paper's
_SCHEDULE_EPOCHS = 60
_QUICK_EPOCHS = 2
_DEFAULT_FOLDER = Path("reproduction")


def reproduce(
    name: Annotated[str, Argument(help="What to make again; an unknown name lists the known ones.")],
    out: Annotated[
        Path | None, Option(help="Folder to write to; else reproduction/NAME (for all: reproduction).")
    ] = None,
    quick: Annotated[bool, Option("--quick", help="A small version, in minutes.")] = False,
    workers: WorkersOption = None,
    keep_stale: KeepStaleOption = False,
) -> None:
    """Make a table or figure of the paper again: paper, ours and the difference.

    What an interrupted run has finished is kept, and the same command goes on from there.
    """
    makers = _makers(quick, workers, keep_stale)
    if name not in (*makers, ALL):
        raise choices("reproduction", name, [*makers, ALL])
    ending = "-quick" if quick else ""
    folder = out or (_DEFAULT_FOLDER if name == ALL else _DEFAULT_FOLDER / f"{name}{ending}")
    if folder.is_file():
        raise InputError(f"Expected a folder to write to, got the file '{folder}': name another.")
    check_writable(folder)
    if name == ALL:
        _reproduce_all(makers, folder, ending)
        return
    if (missing := _missing(name)) is not None:
        raise InputError(missing)
    makers[name](folder)


def _makers(quick: bool, workers: int | None, keep_stale: bool) -> Mapping[str, Callable[[Path], None]]:
    """Return what makes each reproduction in a folder, the cheap ones first."""
    return {
        "parameters": _parameters,
        "counts": partial(_counts, quick=quick),
        "figure-architecture": _architecture,
        "figure-diffusion": partial(_diffusion, quick=quick),
        "figure-schedule": partial(_schedule, quick=quick),
        **{
            name: partial(_experiment, name, quick=quick, workers=workers, keep_stale=keep_stale)
            for name in tables.TABLES
        },
    }


def _reproduce_all(makers: Mapping[str, Callable[[Path], None]], folder: Path, ending: str) -> None:
    """Make everything whose data is here, and say what was left out; fits that fail do not keep the rest from it."""
    left_out, failed = [], False
    for name, make in makers.items():
        if (missing := _missing(name)) is not None:
            left_out.append(f"Left out {name}: {missing}")
            continue
        note(f"\n== {name}")
        try:
            make(folder / f"{name}{ending}")
        except Exit:
            failed = True
    note("\n".join(["", *left_out]) if left_out else "\nNothing was left out.")
    if failed:
        raise Exit(1)


def _missing(name: str) -> str | None:
    """Return what a reproduction lacks; the counts are made of whatever data is here."""
    needed = {"figure-diffusion": [_FIGURE_DATA], "figure-schedule": [_FIGURE_DATA], "counts": list(tables.COUNTS)}
    sets = [tables.TABLES[name].data] if name in tables.TABLES else needed.get(name, [])
    sentences = [sentence for data in sets if (sentence := experiments.missing_data(data)) is not None]
    return " ".join(sentences) if sets and len(sentences) == len(sets) else None


def _experiment(name: str, folder: Path, quick: bool, workers: int | None, keep_stale: bool) -> None:
    experiment = experiments.packaged_experiment(name, quick=quick)
    store = folder / STORE
    beside = sorted({plain_path(path) for path in folder.absolute().parent.glob(f"*/{STORE}*")})
    others = [other for other in beside if other != store.absolute() and is_store(other)]
    if adopted := experiments.adopt_results(experiment, store, others):
        note(f"{adopted} fits were taken over from other reproductions in {folder.parent}")
    with shown(f"Running {experiment.name}", store, experiment.metrics[-1]) as on_event:
        ran = run_experiment(experiment, store, workers=workers, keep_stale=keep_stale, on_event=on_event)
    if ran.results:
        comparison = Comparison.of(
            ran.results,
            table=name,
            title=experiment.title,
            note=" ".join(filter(None, [experiments.QUICK_NOTE if quick else "", tables.other_rows(ran.protocol)])),
            command=f"recfusion reproduce {name}{' --quick' if quick else ''}",
        )
        print_protocol(ran.protocol)
        for table in result_tables(comparison):
            _print_table(table)
        if quick:
            note(experiments.QUICK_NOTE)
        if (other := tables.other_rows(ran.protocol)) is not None:
            note(other)
        for suffix in SUFFIXES:
            write_as(comparison, folder / f"{name}{suffix}")
        note(f"Page:   {folder / f'{name}.html'}\nTables: {folder / name}.md, .csv, .tex; box plot: .svg, .png")
    leave_on_failures(ran)


def _counts(folder: Path, quick: bool) -> None:
    splits = experiments.QUICK_SPLITS if quick else experiments.COUNTED_SPLITS
    missing = {name: sentence for name in tables.COUNTS if (sentence := experiments.missing_data(name)) is not None}
    found = []
    for name in (name for name in tables.COUNTS if name not in missing):
        with working(f"Counting {name} on {splits} splits"):
            found += experiments.count_rows(name, splits=splits)
    columns = (
        *(Column("count"), Column("paper"), Column("ours"), Column("difference", signed=True)),
        *(Column(f"lowest of {splits} splits"), Column("highest")),
    )
    rows = tuple(
        (f"{row.data}, {row.part}: {row.what}", row.paper, row.ours, row.ours - row.paper, row.lowest, row.highest)
        for row in found
    )
    told = "Every rating counts; ours is the split of seed 0. Validation and test are counted by what a model is shown."
    _save_table(Table("Active users, active items and interactions", columns, rows, told), folder / "counts")
    for sentence in missing.values():
        note(f"Left out: {sentence}")


def _parameters(folder: Path) -> None:
    n_items, found = experiments.parameter_counts()
    columns = (Column("model"), Column("paper"), Column("ours"), Column("difference", signed=True))
    rows = tuple(
        (name, tables.PARAMETERS.get(name), ours, ours - tables.PARAMETERS[name] if name in tables.PARAMETERS else None)
        for name, ours in sorted(found.items(), key=lambda of: (of[0] not in tables.PARAMETERS, of[1]))
    )
    told = (
        f"Counted on the networks built for the {n_items:,} items of ML-1M with every rating, "
        "with the paper's settings where a model has them."
    )
    _save_table(Table("Parameters", columns, rows, told), folder / "parameters")


def _diffusion(folder: Path, quick: bool) -> None:
    with working(f"Reading {_FIGURE_DATA}"):
        data = load(_FIGURE_DATA)
    drawn = train_and_draw(data, SplitPlan(), epochs=_QUICK_EPOCHS if quick else _FIGURE_EPOCHS, seed=0)
    save(drawn, *(folder / f"figure-diffusion{suffix}" for suffix in FIGURE_SUFFIXES))


def _schedule(folder: Path, quick: bool) -> None:
    with working(f"Reading {_FIGURE_DATA}"):
        data = load(_FIGURE_DATA)
    drawn = train_schedules(data, SplitPlan(), epochs=_QUICK_EPOCHS if quick else _SCHEDULE_EPOCHS, seed=0)
    save(drawn, *(folder / f"figure-schedule{suffix}" for suffix in FIGURE_SUFFIXES))


def _architecture(folder: Path) -> None:
    drawn = draw_architecture(recfusion_family())
    save(drawn, *(folder / f"figure-architecture{suffix}" for suffix in FIGURE_SUFFIXES))


def _save_table(table: Table, stem: Path) -> None:
    """Print a table and write it as Markdown, CSV and LaTeX."""
    _print_table(table)
    for suffix, text in ((".md", markdown(table)), (".csv", csv_text([table])), (".tex", latex(table))):
        write_text(stem.with_suffix(suffix), text)
    note(f"Table: {stem}.md, .csv, .tex")


def _print_table(table: Table) -> None:
    first, *others = (column.name for column in table.columns)
    heads = (Head(first, no_wrap=True), *(Head(name, justify="right") for name in others))
    shown = Shown(*heads, title=table.title, title_justify="left", caption=table.note, caption_justify="left")
    for row in table.texts():
        shown.add_row(*row)
    out().print(shown)
