"""A dry run of a reproduction: checks archive, memory, time and disk, and fits nothing."""

import shutil
from pathlib import Path

from recfusion.core.memory import available_bytes, gigabytes
from recfusion.data.catalog import data_set, locate
from recfusion.data.published.archive import md5_of
from recfusion.experiments.experiment_file import Experiment
from recfusion.experiments.result import read_results
from recfusion.models.base import Recommender, Shape
from recfusion.models.linear.ease import ItemWeights
from recfusion.models.self_tuning import MOST_ITEMS, searches
from recfusion.models.settings import setting_values
from recfusion.paper import experiments, tables
from recfusion.report.formats import Column, Row, Table

_SECONDS_PER_CUBE = 3.4e-11  # of a factorisation per item cubed, on one core (measured)
_ROW_BYTES = 150  # of memory for each rating while a file is read (measured)
_USER_BYTES = 40  # of a stored result for each test user (measured)
_REPORT_BYTES = 50 << 20  # pages, tables and figures


def dry_run(name: str, store: Path, *, quick: bool = False, splits: int | None = None) -> tuple[Table, Table, bool]:
    """Return the checks of a table's experiment, its models with forecasts of one fit, and whether all checks passed.

    Sizes are the published ones with every rating: an upper limit, known without reading the data.
    """
    experiment = experiments.packaged_experiment(name, quick=quick, splits=splits)
    counts = tables.COUNTS[tables.TABLES[name].data]
    train = counts["train"]
    shape = Shape(train["users"], train["items"], train["interactions"])
    finished = {(one.label, one.seed): one for one in read_results(store) if one.code_state != "stale"}
    rows: list[Row] = []
    seconds, most, n_done = 0.0, 0, 0
    unknown: list[str] = []
    for candidate, seeds in experiment.models:
        done = [finished[candidate.label, seed] for seed in seeds if (candidate.label, seed) in finished]
        each = sum(one.fit_seconds for one in done) / len(done) if done else _seconds(candidate.model, shape)
        unknown += [candidate.label] * (each is None)
        n_done += len(done)
        seconds += (each or 0) * (len(seeds) - len(done))
        needed = candidate.model.forecast(shape).bytes or 0
        most = max(most, needed)
        took = None if each is None else each / 3600
        rows.append((candidate.label, len(seeds), len(done), took, needed / 1e9 or None))
    fits = sum(len(seeds) for _, seeds in experiment.models)
    checks = (
        _archive(experiment),
        _memory(experiment, most),
        _disk(store, fits * counts["test"]["users"] * _USER_BYTES + _REPORT_BYTES),
        ("finished fits", f"{fits}", f"{n_done}", ""),
        ("time", _hours(seconds, unknown), "one core; fits of the store are not repeated", ""),
    )
    heads = ("check", "needed", "found", "result")
    models = tuple(map(Column, ("model", "splits", "finished", "hours per fit", "GB per fit")))
    return (
        Table(f"Dry run: {experiment.title}", tuple(map(Column, heads)), checks, "Nothing was fitted."),
        Table(
            "Forecast of each model",
            models,
            tuple(rows),
            "For the published sizes with every rating: memory is an upper limit, time a rough one.",
        ),
        all(check[-1] != "failed" for check in checks),
    )


def _seconds(model: Recommender, shape: Shape) -> float | None:
    """Return the forecast seconds of a fit: the model's own, or that of the factorisations of a closed form.

    A search of a closed form uses at most `MOST_ITEMS` items; only the last factorisation has all of them.
    """
    if isinstance(model, ItemWeights):
        trials = setting_values(model).get("tune_trials", 0) if searches(model) else 0
        return _SECONDS_PER_CUBE * (trials * min(shape.items, MOST_ITEMS) ** 3 + shape.items**3)
    return model.forecast(shape).seconds


def _check(name: str, needed: str, found: str, passed: bool) -> Row:
    return name, needed, found, "passed" if passed else "failed"


def _archive(experiment: Experiment) -> Row:
    entry = data_set(experiment.data.data)
    path = locate(entry.name)
    if path is None:
        return _check("archive", entry.archive, experiments.missing_data(entry.name) or "", passed=False)
    if path.is_file() and entry.md5 is not None:
        got = md5_of(path)
        return _check("archive", f"MD5 {entry.md5}", f"MD5 {got}", passed=got == entry.md5)
    return _check("archive", entry.archive, f"{path.name}; there is no checksum to compare with", passed=True)


def _memory(experiment: Experiment, most: int) -> Row:
    needed, free = most + _ROW_BYTES * data_set(experiment.data.data).ratings, available_bytes()
    return _check("memory", f"{gigabytes(needed)} with --workers 1", gigabytes(free), needed <= free)


def _disk(store: Path, needed: int) -> Row:
    there = next(folder for folder in store.absolute().parents if folder.is_dir())
    free = shutil.disk_usage(there).free
    return _check("disk", gigabytes(needed), gigabytes(free), needed <= free)


def _hours(seconds: float, unknown: list[str]) -> str:
    return f"about {seconds / 3600:.1f} hours" + (f" without {', '.join(unknown)}" if unknown else "")
