"""Options that several commands share; the data options are generated from the records in data/options.py."""

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from typer import Option

from recfusion.cli.loading import loading
from recfusion.cli.output import working
from recfusion.core.errors import InputError, first_problem
from recfusion.data.features import with_features
from recfusion.data.interactions import Interactions, Signal
from recfusion.data.load import load
from recfusion.data.options import Preparation, SignalChoice, Source, SplitPlan
from recfusion.data.signals import EVERY, parse_signals
from recfusion.inference.bundle import Bundle
from recfusion.models.registry import find

# Option names that differ from the name of the field.
_NAMES = {"kind": "split", "valid": "valid-share", "test": "test-share", "fold_in": "fold-in"}
_PANELS: Mapping[type[BaseModel], str] = {
    Source: "Data",
    Preparation: "Preparation",
    SplitPlan: "Split",
    SignalChoice: "Signals",
}

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


@dataclass(frozen=True)
class DataChoice:
    """The values of the data options of a command."""

    source: Source
    preparation: Preparation
    plan: SplitPlan
    used: SignalChoice

    @property
    def signals(self) -> str:
        """The signals that are used."""
        return self.used.signals

    def load(self, reads: Collection[Signal] = EVERY) -> Interactions:
        """Read and prepare the data, with features if they are requested and a model `reads` them."""
        with working(f"Reading {self.source.label}"):
            return with_features(load(self.source, self.preparation), self.signals, reads)


def data_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command`, which takes a `choice: DataChoice`, one option per field of the data records.

    A parameter of the command with the name of a field (such as an argument `data`) replaces the option.
    """
    own = {p.name: p for p in inspect.signature(command).parameters.values() if p.name != "choice"}
    fields = {name: (record, field) for record in _PANELS for name, field in record.model_fields.items()}
    made = {name: _parameter(name, *declared) for name, declared in fields.items() if name not in own}
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (own | made).values()]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        parse_signals(values["signals"])  # fail before reading data
        given = {name: value for name, value in values.items() if value is not None}
        records = [_build(record, {k: v for k, v in given.items() if k in record.model_fields}) for record in _PANELS]
        command(choice=DataChoice(*records), **{name: values[name] for name in own})

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def parse_settings(pairs: list[str] | None, form: str = "--set NAME=VALUE") -> dict[str, str]:
    """Return the settings of `--set name=value` options, or of other options of that form."""
    settings = {}
    for pair in pairs or []:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise InputError(f"Expected {form}, got '{pair}'.", form.split()[0].lstrip("-"))
        settings[name.strip()] = value.strip()
    return settings


def _parameter(name: str, record: type[BaseModel], field: FieldInfo) -> inspect.Parameter:
    kind: Any = str if name == "min_rating" else field.annotation  # a number, auto or none
    text = field.description or ""
    option = Option(_flag(name), help=f"{text[:1].upper()}{text[1:]}.", rich_help_panel=_PANELS[record])
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=Annotated[kind, option]
    )


def _build(record: type[BaseModel], values: dict[str, Any]) -> Any:
    if isinstance(values.get("min_rating"), str) and values["min_rating"].lower() == "none":
        values["min_rating"] = None
    try:
        return record.model_validate(values)
    except ValidationError as error:
        name, problem = first_problem(error.errors()[0], show=True)
        name = name.partition(".")[0]  # without the types of a union
        raise InputError(f"Option {_flag(name)}: {problem}.", name) from None


def _flag(name: str) -> str:
    return f"--{_NAMES.get(name, name.replace('_', '-'))}"


def load_bundle(folder: Path, trust: list[str] | None) -> Bundle:
    """Load a model folder, whose class may be one that the options --trust name."""
    with loading("the model"):
        return Bundle.load(folder, trust=[find(place).load() for place in trust or ()])
