"""`recfusion models`: list the models, or the settings of one."""

from dataclasses import asdict
from typing import Annotated, Any

from typer import Argument

from recfusion.cli.options import JsonOption
from recfusion.cli.output import out, print_json
from recfusion.core.errors import InputError
from recfusion.data.signals import BINARY, asked_signals
from recfusion.models.registry import Entry, find, known_models
from recfusion.models.settings import setting_values, settings_of


def models(
    name: Annotated[str | None, Argument(help="Model whose settings to show: a name, or file.py:Class.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List all models and their origin, or the settings of one with defaults and meaning."""
    shown = known_models() if name is None else {name: find(name)}
    if as_json:
        print_json({label: _document(entry, listed=name is None) for label, entry in shown.items()})
        return
    console = out()
    if name is None:
        width = max(len(label) for label in shown)
        for label, entry in shown.items():
            console.print(f"[bold]{label:<{width}}[/bold]  ", end="", highlight=False)
            console.print(f"{entry.title}{_presets(entry)}{_reads(entry)} ({entry.origin})", markup=False)
        console.print("\nSettings of a model: recfusion models NAME", style="dim")
        return
    about = _document(shown[name])
    console.print(f"{name}: {about['title']}{_presets(shown[name])}", markup=False, style="bold")
    console.print(f"    {about['place']}, from {about['origin']}{_reads(shown[name])}", markup=False, style="dim")
    for key, value in about["settings"].items():
        default = ": chosen by the fit" if value["default"] is None else f" = {value['default']}"
        console.print(f"    {key}{default}  {value['doc']}", markup=False)


def _presets(entry: Entry) -> str:
    return f" (presets: {', '.join(entry.presets)})" if entry.presets else ""


def _reads(entry: Entry) -> str:
    """Return which signals a model reads, as one asks for them."""
    asked = asked_signals(entry.reads)
    return "" if asked == BINARY else f"; reads {asked}"


def _document(entry: Entry, *, listed: bool = False) -> dict[str, Any]:
    """Return the facts about a model; in a list, settings that a missing package hides are an error's sentence."""
    try:
        settings: dict[str, Any] | str = _settings(entry)
    except InputError as error:
        if not listed:
            raise
        settings = str(error)
    return {
        "title": entry.title,
        "place": entry.place,
        "origin": entry.origin,
        "reads": sorted(entry.reads),
        "presets": {preset: dict(values) for preset, values in entry.presets.items()},
        "settings": settings,
    }


def _settings(entry: Entry) -> dict[str, Any]:
    declared = settings_of(entry.load())
    return {key: {"default": value, **asdict(declared[key])} for key, value in setting_values(entry.make()).items()}
