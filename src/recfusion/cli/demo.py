"""`recfusion demo`: compare, train and report on the embedded data, offline."""

from pathlib import Path
from typing import Annotated

from typer import Option

from recfusion.cli.output import literal, note
from recfusion.cli.result_output import print_protocol, print_results
from recfusion.cli.run import leave_on_failures, shown
from recfusion.core.extras import is_installed
from recfusion.core.files import check_writable_file
from recfusion.data.load import load
from recfusion.data.options import SplitPlan
from recfusion.data.signals import BINARY
from recfusion.evaluation.metrics import DEFAULT_METRICS, MAIN_METRIC
from recfusion.experiments.candidate import candidates
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.run import run_candidates
from recfusion.experiments.train import train
from recfusion.models.registry import DEFAULT_MODEL
from recfusion.report.page import write_page

_NETWORK = "recfusion"  # left out without torch
_MODELS = ("random", "popularity", "ease", _NETWORK, DEFAULT_MODEL)


def demo(
    folder: Annotated[Path, Option("--out", help="Folder for the model, the results and the report.")] = Path(
        "recfusion-demo"
    ),
    splits: Annotated[int, Option(help="Number of random splits.", min=1)] = 3,
) -> None:
    """Compare models on the embedded movie ratings, save the best one, and write a report page."""
    store = folder / "results.jsonl"
    check_writable_file(store)
    data = load()
    compared = [name for name in _MODELS if name != _NETWORK or is_installed("torch")]
    planned = [(candidate, tuple(range(splits))) for candidate in candidates(compared)]
    with shown("Comparing", store, MAIN_METRIC) as on_event:
        summary = run_candidates(
            data, planned, plan=SplitPlan(), metrics=DEFAULT_METRICS, store=store, on_event=on_event
        )
    leave_on_failures(summary)
    comparison = Comparison.of(summary.results, command="recfusion demo")

    console = print_protocol(summary.protocol)
    print_results(console, comparison)
    best = max(
        compared, key=lambda name: sum(one.validation[MAIN_METRIC] for one in summary.results if one.label == name)
    )
    console.print(f"\nRecommendations of {best}, the best on the validation users, for unseen test users:")
    for example in comparison.examples:
        liked = literal(", ".join(example.history[:4]))
        console.print(f"\n  [bold]User {example.number}[/bold] liked {liked}, ...", soft_wrap=True)
        for place in example.lists[best][:5]:
            console.print(f"   {'[green]✓[/green]' if place.hit else ' '} {literal(place.title)}")
    console.print("  (✓: a held-out item that the user liked)\n")

    bundle = train(best, data, signals=BINARY)
    model_folder = bundle.save(folder / "model")
    page = write_page(comparison, folder / "report.html")
    liked = ",".join(str(item) for item in bundle.items.sort("train_count", descending=True)["item"][:3].to_list())
    note(f"Report:  {page}\nResults: {store}\nModel:   {model_folder}")
    note(f"Next:    recfusion recommend {model_folder} --history {liked}")
