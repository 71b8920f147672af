"""Options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from recfusion.cli.loading import loading, without_collection
from recfusion.core.errors import InputError

if TYPE_CHECKING:
    from recfusion.inference.bundle import Bundle

SetOption = Annotated[
    list[str] | None,
    Option("--set", metavar="NAME=VALUE", help="Change a setting (compare: LABEL.NAME=VALUE); may be repeated."),
]
TuneOption = Annotated[
    int | None, Option("--tune-trials", help="Trials of each model's search for settings; 0: none.", min=0)
]
SeedOption = Annotated[int, Option(help="Seed of the split and of the model.", min=0)]
TrustOption = Annotated[
    list[str] | None,
    Option(
        "--trust",
        metavar="FILE.py:CLASS",
        help="Allow a model of your own class in the folder (file.py:Class or package.module:Class).",
    ),
]
UserIdsOption = Annotated[bool, Option("--show-user-ids", help="Show user ids instead of numbers in examples.")]
WorkersOption = Annotated[
    int | None, Option(help="Number of worker processes; default: one per core; 0: run in this process.", min=0)
]
DecidingOption = Annotated[
    str | None,
    Option("--deciding", help="Metric that ranks the models (default: the last one that measures accuracy)."),
]
JsonOption = Annotated[bool, Option("--json", help="Print one JSON document and nothing else.")]


def parse_settings(pairs: list[str] | None, form: str = "--set NAME=VALUE") -> dict[str, str]:
    """Return the settings of `--set name=value` options, or of other options of that form."""
    settings = {}
    for pair in pairs or []:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise InputError(f"Expected {form}, got '{pair}'.", form.split()[0].lstrip("-"))
        settings[name.strip()] = value.strip()
    return settings


def load_bundle(folder: Path, trust: list[str] | None) -> "Bundle":
    """Load a model folder, whose class may be one that the options --trust name."""
    with loading("the model"), without_collection():  # also the modules, which commands without a model do not need
        from recfusion.inference.bundle import Bundle
        from recfusion.models.registry import find

        return Bundle.load(folder, trust=[find(place).load() for place in trust or ()])
