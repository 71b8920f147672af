"""Options that several commands share; those of the data are made from the fields of its records."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from typer import Option

from recfusion.cli.output import working
from recfusion.core.errors import InputError
from recfusion.data.features import with_features
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import Preparation, SignalChoice, Source, SplitPlan
from recfusion.data.signals import parse_signals
from recfusion.models.base import Recommender
from recfusion.models.registry import find

# Option names that differ from the field's own.
_NAMES = {"kind": "split", "valid": "valid-share", "test": "test-share", "fold_in": "fold-in"}
_PANELS: Mapping[type[BaseModel], str] = {
    Source: "Data",
    Preparation: "Preparation",
    SplitPlan: "Split",
    SignalChoice: "Signals",
}

SetOption = Annotated[
    list[str] | None,
    Option("--set", metavar="NAME=VALUE", help="Set a setting (compare: LABEL.NAME=VALUE); may be repeated."),
]
TuneOption = Annotated[
    int | None, Option("--tune-trials", help="Trials of the models' own search for settings; 0: none.", min=0)
]
SeedOption = Annotated[int, Option(help="Seed of the split and of the model.", min=0)]
TrustOption = Annotated[
    list[str] | None,
    Option(
        "--trust",
        metavar="FILE.py:CLASS",
        help="A class of your own that the folder's model may be of (file.py:Class or package.module:Class).",
    ),
]
UserIdsOption = Annotated[
    bool, Option("--show-user-ids", help="Name the users of examples by their ids instead of numbers.")
]
WorkersOption = Annotated[
    int | None, Option(help="Processes side by side; else one per core; 0: none, all in this one.", min=0)
]
JsonOption = Annotated[bool, Option("--json", help="Print one JSON document and nothing else.")]


@dataclass(frozen=True)
class DataChoice:
    """What the shared options of a command amount to."""

    source: Source
    preparation: Preparation
    plan: SplitPlan
    used: SignalChoice

    @property
    def signals(self) -> str:
        """What is used beside the ones."""
        return self.used.signals

    def load(self) -> Interactions:
        """Read and prepare the data."""
        with working(f"Reading {self.source.data}"):
            return with_features(load(self.source, self.preparation), self.signals)


def data_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command`, which takes a `choice: DataChoice`, one option per field of the records of data.

    A command that has a parameter named like a field (an argument `data`, say) keeps its own.
    """
    own = {p.name: p for p in inspect.signature(command).parameters.values() if p.name != "choice"}
    fields = {name: (record, field) for record in _PANELS for name, field in record.model_fields.items()}
    made = {name: _parameter(name, *declared) for name, declared in fields.items() if name not in own}
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (own | made).values()]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        parse_signals(values["signals"])  # a wrong one should not wait for the data
        records = [_build(record, {name: values[name] for name in record.model_fields}) for record in _PANELS]
        command(choice=DataChoice(*records), **{name: values[name] for name in own})

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def parse_settings(pairs: list[str] | None, form: str = "--set NAME=VALUE") -> dict[str, str]:
    """Return the settings of `--set name=value` options, or of others of that form."""
    settings = {}
    for pair in pairs or []:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise InputError(f"Expected {form}, got '{pair}'.")
        settings[name.strip()] = value.strip()
    return settings


def _parameter(name: str, record: type[BaseModel], field: FieldInfo) -> inspect.Parameter:
    flag = f"--{_NAMES.get(name, name.replace('_', '-'))}"
    kind: Any = field.annotation
    if name == "min_rating":
        kind, flag_help = str, "keep ratings at or above this number; auto: 4 for stars, none elsewhere; none: keep all"
    else:
        flag_help = field.description or ""
    option = Option(flag, help=flag_help[:1].upper() + flag_help[1:] + ".", rich_help_panel=_PANELS[record])
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=Annotated[kind, option]
    )


def _build(record: type[BaseModel], values: dict[str, Any]) -> Any:
    if isinstance(values.get("min_rating"), str) and values["min_rating"].lower() == "none":
        values["min_rating"] = None
    try:
        return record.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise InputError(
            f"Option --{_NAMES.get(name, name.replace('_', '-'))}: {first['msg'].lower()}, got '{values[name]}'."
        ) from None


def trusted_classes(places: list[str] | None) -> list[type[Recommender]]:
    """Return the classes of `--trust` options."""
    return [find(place).load() for place in places or []]
