"""Command-line options generated from records of data, requests and settings, and the tables that commands print."""

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import polars as pl
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from rich.table import Column, Table
from typer import Option

from recfusion.cli.options import parse_settings
from recfusion.cli.output import literal, out
from recfusion.core.errors import InputError, first_problem
from recfusion.core.files import check_regular
from recfusion.data.options import Preparation, SignalChoice, Source, SplitPlan
from recfusion.data.reading.id_lines import read_id_lines
from recfusion.inference.request import Filters, Reranking

Command = Callable[..., None]
R = TypeVar("R", bound=BaseModel)
# Option names that differ from the name of the field.
_NAMES = {"kind": "split", "valid": "valid-share", "test": "test-share"}
_PANELS: Mapping[type[BaseModel], str] = {
    Source: "Data",
    Preparation: "Preparation",
    SplitPlan: "Split",
    SignalChoice: "Signals",
    Reranking: "Re-ranking",
}


def request_options(command: Command) -> Command:
    """Replace each parameter of `command` that is a record by one option for each field of the record.

    Another parameter with the name of a field (such as an argument `data`) replaces its option.
    """
    parameters = inspect.signature(command).parameters.values()
    records = {p.name: p.annotation for p in parameters if _is_record(p.annotation)}
    own = {p.name: p for p in parameters if p.name not in records}
    made = {name: one for record in records.values() for name, one in _options(record).items() if name not in own}

    def run(**values: Any) -> None:
        built = {name: _build(record, values) for name, record in records.items()}
        command(**{name: values[name] for name in own}, **built)

    return _with_parameters(run, command, (own | made).values())


def source_options(*names: str, panel: str) -> Callable[[Command], Command]:
    """Give a command, which takes a `source: Source`, one option for each of these fields."""

    def decorate(command: Command) -> Command:
        own = [p for p in inspect.signature(command).parameters.values() if p.name != "source"]
        made = [_option(name, Source.model_fields[name], panel) for name in names]

        def run(**values: Any) -> None:
            given = {name: values.pop(name) for name in names}
            command(source=_validated(Source, given), **values)

        return _with_parameters(run, command, [*own, *made])

    return decorate


def _with_parameters(run: Command, command: Command, parameters: Iterable[inspect.Parameter]) -> Command:
    """Return `run` with the name and the help of `command`, and with these parameters."""
    named = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    functools.update_wrapper(run, command)
    run.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in named}
    return run


def _is_record(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _options(record: type[BaseModel]) -> dict[str, inspect.Parameter]:
    """Return one option for each field of a record and of the records within it."""
    made: dict[str, inspect.Parameter] = {}
    for name, field in record.model_fields.items():
        if _is_record(field.annotation):
            made |= _options(field.annotation)  # type: ignore[arg-type]
        else:
            made[name] = _option(name, field, _PANELS.get(record, "Filters" if name in Filters.model_fields else None))
    return made


def _option(name: str, field: FieldInfo, panel: str | None) -> inspect.Parameter:
    """Return the option of a field; its type and bounds are those of the field."""
    text = field.description or ""
    more: dict[str, Any] = {"help": f"{text[:1].upper()}{text[1:]}.", "rich_help_panel": panel}
    form = _form(field)
    default, kind = field.get_default(call_default_factory=True), _base_type(field.annotation)
    if form is not None:
        more |= {"metavar": form.metavar, "help": f"{more['help']}{form.hint}"}
        default, kind = default if isinstance(default, str) else None, form.kind
    elif default == ():
        default, kind = [], list[str]
    elif kind in (int, float):
        sides = (("min", "ge"), ("max", "le"))
        more |= {side: getattr(rule, key) for rule in field.metadata for side, key in sides if hasattr(rule, key)}
    kind = kind | None if default is None else kind
    annotation = Annotated[kind, Option(_flag(name), **more)]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _flag(name: str) -> str:
    flag = _NAMES.get(name, name.replace("_", "-"))
    return f"-{flag}" if len(flag) == 1 else f"--{flag}"


def _build(record: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    """Return a record from the values of its options; absent options are left out."""
    found: dict[str, Any] = {}
    for name, field in record.model_fields.items():
        if _is_record(field.annotation):
            found[name] = _build(field.annotation, values)  # type: ignore[arg-type]
        elif values[name] is not None:
            form = _form(field)
            found[name] = values[name] if form is None else form.parse(values[name], _flag(name))
    return _validated(record, found)


def _validated(record: type[R], values: dict[str, Any]) -> R:
    """Return a record; an error names the option and, for an option of several values, which one is wrong."""
    try:
        return record.model_validate(values)
    except ValidationError as error:
        field, problem = first_problem(error.errors()[0], show=True)
        name, _, inner = field.partition(".")
        option = f"Option {_flag(name)}" if name else "The options"
        raise InputError(f"{option}: {f'{inner}: ' if inner else ''}{problem}.", field or None) from None


def _parse_ids(text: str, option: str) -> list[str]:
    """Return the ids of a file with one id per line, or of a text with commas."""
    path = Path(text)
    try:
        if not path.exists() or path.is_dir():  # a file may be a pipe, such as `<(...)` of a shell
            return split_commas(text)
    except OSError:  # longer than any file name
        return split_commas(text)
    check_regular(path)
    return read_id_lines(path, option)


def split_commas(text: str) -> list[str]:
    """Return the parts of a text with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _parse_history(text: str, option: str) -> Any:
    """Return the entries of a history: ids with commas, or a JSON list."""
    if not text.lstrip().startswith("["):
        return split_commas(text)
    try:
        return json.loads(text)
    except ValueError:
        raise InputError(
            f"Expected ids with commas or a JSON list as {option}, got neither: check the quotes.", option
        ) from None


def _parse_counts(pairs: list[str], option: str) -> dict[str, int]:
    """Return {column: count} of options such as genres=3."""
    found = parse_settings(pairs, f"{option} COLUMN=N")
    for column, count in found.items():
        if not count.isdecimal():
            raise InputError(f"Expected {option} COLUMN=N with a whole number, got '{column}={count}'.", option)
    return {column: int(count) for column, count in found.items()}


def _parse_numbers(pairs: list[str], option: str) -> dict[str, float]:
    """Return {column: number} of options such as margin=.3."""
    found = parse_settings(pairs, f"{option} COLUMN=NUMBER")
    try:
        return {column: float(number) for column, number in found.items()}
    except ValueError:
        raise InputError(f"Expected {option} COLUMN=NUMBER, got '{', '.join(pairs)}'.", option) from None


def _parse_places(pairs: list[str], option: str) -> dict[str, str]:
    """Return {place: id} of options such as 1=i07."""
    return parse_settings(pairs, f"{option} PLACE=ID")


def _parse_number_or_word(text: str, _: str) -> str | None:
    return None if text.lower() == "none" else text


def _parse_values(pairs: list[str], option: str, parse: Any = float, kind: str = "NUMBER") -> dict[str, dict[str, Any]]:
    """Return {column: {value: number}} of options such as genres:Drama=1,Horror=-.5, or {column: {value: word}}."""
    found: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        column, separator, rest = pair.partition(":")
        for part in rest.split(","):
            value, equals, weight = part.rpartition("=")
            try:
                if not separator or not equals or not column.strip() or not value.strip():
                    raise ValueError
                found.setdefault(column.strip(), {})[value.strip()] = parse(weight)
            except ValueError:
                form = f"{option} COLUMN:VALUE={kind},VALUE={kind}"
                raise InputError(f"Expected {form}, got '{pair}'.", option) from None
    return found


@dataclass(frozen=True)
class _Form:
    """How a command line spells a value that is no single text or number."""

    kind: Any  # type of the option
    parse: Callable[[Any, str], Any]
    metavar: str
    hint: str = ""


_IDS = _Form(str, _parse_ids, "ID,ID|FILE", " A file has one id per line.")
_HISTORY = _Form(str, _parse_history, "ID,ID|JSON", ' JSON: [{"item": 318, "rating": 5, "time": 1600000000}].')
_COUNTS = _Form(list[str], _parse_counts, "COLUMN=N")
_NUMBERS = _Form(list[str], _parse_numbers, "COLUMN=NUMBER")
_NUMBER_OR_WORD = _Form(str, _parse_number_or_word, "NUMBER|WORD")
_PLACES = _Form(list[str], _parse_places, "PLACE=ID")
_WEIGHTS = _Form(list[str], _parse_values, "COLUMN:VALUE=NUMBER")
_WORDS = _Form(list[str], functools.partial(_parse_values, parse=str.strip, kind="WORD"), "COLUMN:VALUE=WORD")


def _form(field: FieldInfo) -> _Form | None:
    """Return the form of a field's option; None for a single text, number or flag, and for repeated texts."""
    kind = _base_type(field.annotation)
    if get_origin(kind) is tuple and get_args(kind)[0] not in (str, Path):
        return _IDS if _base_type(get_args(kind)[0]) is str else _HISTORY
    if get_origin(kind) is dict:
        inner = _base_type(get_args(kind)[1])
        if get_origin(inner) is dict:
            return _WORDS if get_origin(get_args(inner)[1]) is Literal else _WEIGHTS
        return {int: _COUNTS, float: _NUMBERS, str: _PLACES}[inner]
    return _NUMBER_OR_WORD if get_origin(kind) in (Union, UnionType) else None


def _base_type(annotation: Any) -> Any:
    """Return a type without its bounds and without None."""
    while True:
        parts = [part for part in get_args(annotation) if part is not type(None)]
        if get_origin(annotation) is Annotated or (get_origin(annotation) in (Union, UnionType) and len(parts) == 1):
            annotation = parts[0]
        else:
            return annotation


def print_items(found: pl.DataFrame, title: str) -> None:
    """Print a list of items as a table, with the texts of the reasons.

    Scores are in single precision and get four digits; numbers of item tables are not, and keep their own.
    """
    if "because" in found.columns:
        found = found.with_columns(because_texts(found))
    heads = (
        Column(literal(name), justify="right" if kind.is_numeric() else "left") for name, kind in found.schema.items()
    )
    table = Table(*heads, title=literal(title), title_justify="left")
    scores = [kind == pl.Float32 for kind in found.schema.values()]
    for row in found.iter_rows():
        cells = zip(row, scores, strict=True)
        table.add_row(*(literal("" if cell is None else f"{cell:.4f}" if own else str(cell)) for cell, own in cells))
    out().print(table)


def because_texts(found: pl.DataFrame) -> pl.Series:
    """Return the reasons for each item of a list as one text."""
    return found["because"].list.eval(pl.element().struct.field("text")).list.join("; ").alias("because")
