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
    for name, about in document.items():
        presets = f" (presets: {', '.join(about['presets'])})" if about["presets"] else ""
        console.print(f"[bold]{name}[/bold]: {about['title']}{presets}")
        for key, value in about["settings"].items():
            console.print(f"    {key} = {value['default']}  {value['doc']}", markup=False)
