"""`recfusion plan`: pre-register an experiment before it is run."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from recfusion.cli.output import counted, note
from recfusion.core.errors import InputError
from recfusion.experiments.experiment_file import read_experiment
from recfusion.experiments.plan_file import write_plan


def plan(
    file: Annotated[Path, Argument(help="The experiment, a TOML file; its hypotheses are a list of texts.")],
    out: Annotated[
        Path | None, Option(help="File of the plan (default: NAME.plan.json beside the experiment).")
    ] = None,
) -> None:
    """Write the plan of an experiment: its models with all defaults, code, metrics, splits and hypotheses.

    Commit it before the data is used. `recfusion run FILE --plan PLAN` then says whether a run is confirmatory.
    """
    experiment = read_experiment(file)
    path = out or file.with_name(f"{experiment.name}.plan.json")
    if path.exists():
        raise InputError(
            f"Expected no plan at '{path}' yet: a plan is never overwritten; name another with --out.", "out"
        )
    written = write_plan(path, experiment)
    what = f"{counted(len(written.models), 'model')}, hypotheses: {len(written.hypotheses)}"
    note(f"Plan of {experiment.name} ({what}) is in {path}: commit it before the run.")
