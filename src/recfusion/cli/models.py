"""`recfusion models`: every model with its settings."""

from typing import Any

from recfusion.cli.options import JsonOption


def models(as_json: JsonOption = False) -> None:
    """List every model with its settings, their defaults and what they mean."""
    import dataclasses

    from recfusion.cli.output import out, print_json
    from recfusion.models.base import settings_of
    from recfusion.models.registry import MODELS

    document: dict[str, Any] = {
        name: {
            "title": model.title,
            "settings": {
                field.name: {"default": field.default, **dataclasses.asdict(settings_of(model)[field.name])}
                for field in dataclasses.fields(model)
                if field.name in settings_of(model)
            },
        }
        for name, model in MODELS.items()
    }
    if as_json:
        print_json(document)
        return
    console = out()
    for name, entry in document.items():
        console.print(f"[bold]{name}[/bold]: {entry['title']}")
        for key, value in entry["settings"].items():
            console.print(f"    {key} = {value['default']}  {value['doc']}", markup=False)
