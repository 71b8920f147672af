"""`recfusion demo`: the main job from end to end on the embedded data, offline."""

from pathlib import Path
from typing import Annotated

import typer

_MODELS = ("random", "popularity", "ease", "recfusion", "thinning")


def demo(
    folder: Annotated[Path, typer.Option("--out", help="Folder for the model, the results and the report.")] = Path(
        "recfusion-demo"
    ),
    splits: Annotated[int, typer.Option(help="Number of random splits.", min=1)] = 3,
) -> None:
    """Compare models on the embedded movie ratings, save the best one, and write a report page."""
    from recfusion.cli.compare import run_comparison
    from recfusion.cli.output import note, out, print_protocol, print_results
    from recfusion.core.files import check_writable_file, write_json
    from recfusion.data.load import load
    from recfusion.data.settings import SplitPlan
    from recfusion.evaluation.metrics import DEFAULT_METRICS
    from recfusion.experiments.results import result_document
    from recfusion.experiments.store import package_versions
    from recfusion.experiments.train import train
    from recfusion.report.document import REFERENCE
    from recfusion.report.page import write_page

    check_writable_file(folder / "report.html")
    data = load()
    runs = run_comparison(data, {name: {} for name in _MODELS}, range(splits), SplitPlan(), DEFAULT_METRICS)
    document = result_document(runs, reference=REFERENCE)
    document |= {"command": "recfusion demo", "versions": package_versions()}

    console = out()
    print_protocol(console, runs[0].protocol)
    print_results(console, document)
    best = max(_MODELS, key=lambda name: sum(run.validation[DEFAULT_METRICS[-1]] for run in runs if run.name == name))
    console.print(f"\nWhat {best}, the best on validation, recommends to test users, whom it has never seen:")
    for example in document["examples"]:
        console.print(
            f"\n  [bold]User {example['user']}[/bold] liked {', '.join(example['history'][:4])}, ...", soft_wrap=True
        )
        for place in example["lists"][best][:5]:
            mark = "[green]✓[/green]" if place["hit"] else " "
            console.print(f"   {mark} {place['title']}")
    console.print("  (✓: the user did like it; the model was not told)\n")

    bundle = train(best, data)
    model_folder = bundle.save(folder / "model")
    write_json(folder / "results.json", document)
    page = write_page(document, folder / "report.html")
    liked = ",".join(str(item) for item in bundle.items.sort("train_count", descending=True)["item"][:3].to_list())
    note(f"Report:  {page}\nResults: {folder / 'results.json'}\nModel:   {model_folder}")
    note(f"Next:    recfusion recommend {model_folder} --history {liked}")
