"""`recfusion demo`: the main job from end to end on the embedded data, offline."""

from pathlib import Path
from typing import Annotated

from typer import Option

from recfusion.cli.output import literal, note, print_protocol, print_results
from recfusion.cli.run import leave_on_failures, shown
from recfusion.core.files import check_writable_file
from recfusion.data.load import load
from recfusion.data.options import SplitPlan
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.experiments.candidate import candidates
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.run import run_candidates
from recfusion.experiments.train import train
from recfusion.models.registry import DEFAULT_MODEL
from recfusion.report.page import write_page

_MODELS = ("random", "popularity", "ease", "recfusion", DEFAULT_MODEL)


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
    planned = [(candidate, tuple(range(splits))) for candidate in candidates(_MODELS)]
    with shown("Comparing", store, DEFAULT_METRICS[-1]) as tell:
        ran = run_candidates(data, planned, plan=SplitPlan(), metrics=DEFAULT_METRICS, store=store, on_event=tell)
    leave_on_failures(ran)
    comparison = Comparison.of(ran.results, command="recfusion demo")

    console = print_protocol(ran.protocol)
    print_results(console, comparison)
    metric = DEFAULT_METRICS[-1]
    best = max(_MODELS, key=lambda name: sum(one.validation[metric] for one in ran.results if one.label == name))
    console.print(f"\nWhat {best}, the best on validation, recommends to test users, whom it has never seen:")
    for example in comparison.examples:
        liked = literal(", ".join(example.history[:4]))
        console.print(f"\n  [bold]User {example.number}[/bold] liked {liked}, ...", soft_wrap=True)
        for place in example.lists[best][:5]:
            console.print(f"   {'[green]✓[/green]' if place.hit else ' '} {literal(place.title)}")
    console.print("  (✓: the user did like it; the model was not told)\n")

    bundle = train(best, data)
    model_folder = bundle.save(folder / "model")
    page = write_page(comparison, folder / "report.html")
    liked = ",".join(str(item) for item in bundle.items.sort("train_count", descending=True)["item"][:3].to_list())
    note(f"Report:  {page}\nResults: {store}\nModel:   {model_folder}")
    note(f"Next:    recfusion recommend {model_folder} --history {liked}")
