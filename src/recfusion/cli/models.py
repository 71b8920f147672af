"""`recfusion models`: every model with its settings."""

from typing import Any

from recfusion.cli.options import JsonOption


def models(as_json: JsonOption = False) -> None:
    """List every model with its settings, their defaults and what they mean."""
    import dataclasses

    from recfusion.cli.output import out, print_json
    from recfusion.models.base import setting_values, settings_of
    from recfusion.models.registry import MODELS, make_model

    document: dict[str, Any] = {}
    for name, entry in MODELS.items():
        declared = settings_of(entry.load())
        document[name] = {
            "title": entry.title,
            "presets": {preset: dict(values) for preset, values in entry.presets.items()},
            "settings": {
                key: {"default": value, **dataclasses.asdict(declared[key])}
                for key, value in setting_values(make_model(name)).items()
            },
        }
    if as_json:
        print_json(document)
        return
    console = out()
    shown: dict[type, str] = {}  # the first model of each class: the others say only where they differ from it
    for name, about in document.items():
        presets = f" (presets: {', '.join(about['presets'])})" if about["presets"] else ""
        console.print(f"[bold]{name}[/bold]: {about['title']}{presets}")
        first = shown.setdefault(MODELS[name].load(), name)
        settings = about["settings"]
        if first != name:
            console.print(f"    settings as {first}, but for:", markup=False)
            settings = {key: value for key, value in settings.items() if value != document[first]["settings"][key]}
        for key, value in settings.items():
            default = ": chosen by the fit" if value["default"] is None else f" = {value['default']}"
            console.print(f"    {key}{default}  {value['doc']}", markup=False)
