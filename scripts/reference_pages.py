"""Write the generated part of the reference into docs/reference/generated/ (not committed; the site's build calls it).

Usage: python scripts/reference_pages.py
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from reference_api import MODULES, api_page
from reference_tables import reference_tables

import recfusion as rf
from recfusion.cli.main import BAD_INPUT, COMMANDS, INTERRUPTED, command_line
from recfusion.data.catalog import CATALOG
from recfusion.data.options import Preparation, SignalChoice, Source, SplitPlan
from recfusion.data.signals import BINARY, asked_signals
from recfusion.evaluation.metrics import MAIN_METRIC, METRICS
from recfusion.experiments.comparison import Comparison
from recfusion.experiments.result import read_results
from recfusion.models.registry import MODELS, Entry
from recfusion.models.settings import setting_values, settings_of
from recfusion.nightly.config import Shop
from recfusion.server.app import make_app
from recfusion.server.config import Options, Settings
from recfusion.server.guard import OPEN
from recfusion.server.keys import scope_of

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference" / "generated"
RECORDS: Mapping[str, tuple[type[BaseModel], str]] = {
    "Data source": (
        Source,
        "Options of `recfusion train` and others, keys of `[data]` in experiment files, `rf.Source`.",
    ),
    "Preparation": (Preparation, "The same as options, and as `rf.Preparation`."),
    "Split": (SplitPlan, "The same as options, and as `rf.SplitPlan`. `kind` is `--split` on the command line."),
    "Signals": (SignalChoice, "What a model may read beside the fact that a user has an item."),
    "Service": (Options, "Options of `recfusion serve`; most are also keys of `[serve]` in the file of a shop."),
    "Shop": (Shop, "Keys of the file of `recfusion nightly`."),
}


def models_page() -> str:
    """Return every model: what it reads, what it costs, when it was ahead, and its settings."""
    found = Comparison.of(read_results(ROOT / "results" / "ml1m.jsonl"))
    lines = [
        "# Models\n",
        "NDCG@100 and seconds of a fit are means on MovieLens 1M under the paper's protocol, from "
        "[results/ml1m](/results/ml1m.md); the machine was shared, so seconds are upper limits. "
        "An empty cell was not measured there. `recfusion models NAME` prints the same settings.\n",
        "| model | what it is | reads | NDCG@100 | fit |",
        "|---|---|---|---:|---:|",
    ]
    for name, entry in MODELS.items():
        summary = found.models.get(name)
        cost = (f"{100 * summary.mean(MAIN_METRIC):.2f}", f"{summary.fit_seconds:.0f} s") if summary else ("", "")
        lines.append(f"| [`{name}`](#{name}) | {_cell(entry.title)} | {_reads(entry)} | {cost[0]} | {cost[1]} |")
    for name, entry in MODELS.items():
        lines += [f"\n## {name}\n", f"{entry.title[:1].upper()}{entry.title[1:]}. Class `{entry.place}`."]
        if entry.presets:
            lines.append(f" Presets: {', '.join(f'`{preset}`' for preset in entry.presets)}.")
        lines += ["\n| setting | default | allowed | searched | meaning |", "|---|---|---|---|---|"]
        declared = settings_of(entry.load())
        for key, value in setting_values(entry.make()).items():
            of = declared[key]
            bounds = " to ".join("" if end is None else f"{end:g}" for end in (of.at_least, of.at_most))
            bounds = {" to ": ""}.get(bounds, bounds)
            searched = "all values" if of.search == "all" else " to ".join(f"{end:g}" for end in of.search or ())
            default = "chosen by the fit" if value is None and of.start is not None else f"`{_short(value)}`"
            lines.append(f"| `{key}` | {default} | {bounds} | {searched} | {_cell(of.doc)} |")
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """Return every command with its arguments and options."""
    lines = ["# Options of the commands\n", "The [list of commands](../commands.md) says what each one is for.\n"]
    for path in COMMANDS:
        command: Any = command_line()
        for word in path.split():
            command = command.commands[word]
        real = command.make_context(command.name, [], resilient_parsing=True).command
        lines += [f"## recfusion {path}\n", f"{' '.join(str(command.help).split())}\n"]
        lines += ["| option | default | meaning |", "|---|---|---|"]
        for one in real.params:
            if getattr(one, "hidden", False) or one.name == "help":
                continue
            names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
            default = (
                "required"
                if one.required
                else ""
                if one.default in (None, False, (), [])
                else f"`{_short(one.default)}`"
            )
            lines.append(f"| {names} | {default} | {_cell(getattr(one, 'help', None) or '')} |")
        lines.append("")
    return "\n".join(lines)


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of a service without keys."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = rf.train("popularity", rf.load("ml-latest-small"), all_users=True)
        bundle.save(Path(folder) / "model")
        app: Any = make_app(Settings(folder=Path(folder) / "model", events=Path(folder) / "events.sqlite"))
        document: dict[str, Any] = app.app.openapi()
    return document


def routes_page(document: Mapping[str, Any]) -> str:
    """Return every route with the fields of its request and response."""
    lines = [
        "# Routes of the service\n",
        "The service has this document at `/openapi.json` ([copy](openapi.json)) and a page to try routes at `/docs`. "
        "Errors have the body `{error, field}`: 4xx is the client's mistake, 5xx the service's. "
        "[The service](../../how-to/service.md) explains users, events, keys and limits.\n",
    ]
    schemas = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines += [f"## {method.upper()} {path}\n", f"{operation['summary']}. "]
            scope = "none" if path in OPEN else scope_of(method.upper(), path)
            lines.append(f"Scope of the key, if the service has keys: {scope}.\n")
            rows = [(one["name"], one["schema"], one.get("required")) for one in operation.get("parameters", ())]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            rows += list(_properties(body, schemas)) if body else []
            lines += _field_table("request", rows)
            for status, answer in operation["responses"].items():
                schema = answer.get("content", {}).get("application/json", {}).get("schema")
                if status.startswith("2") and schema:
                    lines += _field_table(f"response {status}", list(_properties(schema, schemas)))
    return "\n".join(lines) + "\n"


def _field_table(what: str, rows: list[tuple[str, Any, bool | None]]) -> list[str]:
    if not rows:
        return []
    lines = [f"| {what} | type | default | meaning |", "|---|---|---|---|"]
    for name, schema, required in rows:
        default = (
            "required"
            if required
            else f"`{_short(schema['default'])}`"
            if schema.get("default") not in (None, {}, [])
            else ""
        )
        lines.append(f"| `{name}` | {_kind(schema)} | {default} | {_cell(schema.get('description') or '')} |")
    return [*lines, ""]


def _properties(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    found = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    for name, field in found.get("properties", {}).items():
        yield name, field, name in found.get("required", ())


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    return str(schema.get("type", "any"))


def settings_page() -> str:
    """Return the options of data, service and shop, the request controls, the metrics and the data sets."""
    lines = ["# Settings\n", "Each setting is declared once in the source, and this page is made from it.\n"]
    for title, (record, about) in RECORDS.items():
        lines += [f"## {title}\n", f"{about}\n", "| setting | default | meaning |", "|---|---|---|"]
        for name, field in record.model_fields.items():
            is_table = isinstance(field.default, BaseModel | dict)
            default = (
                "required"
                if field.is_required()
                else ""
                if is_table or field.default in (None, ())
                else f"`{_short(field.default)}`"
            )
            lines.append(f"| `{name}` | {default} | {_cell(field.description or '')} |")
        lines.append("")
    titles = {"filters": "Filters", "reranking": "Re-ranking controls", "request": "Other fields of a request"}
    for name, table in reference_tables().items():
        lines += [f"## {titles.get(name, 'Entries of a history')}\n", table]
    lines += ["## Metrics\n", "| metric | formula |", "|---|---|"]
    lines += [f"| `{name}@K` | {_cell(metric.formula)} |" for name, metric in METRICS.items()]
    lines += ["\n## Data sets\n", "| name | title | rows | licence |", "|---|---|---:|---|"]
    lines += [f"| `{one.name}` | {one.title} | {one.ratings:,} | {_cell(one.licence)} |" for one in CATALOG.values()]
    return "\n".join(lines) + "\n"


def errors_page() -> str:
    """Return the exit codes and kinds of errors."""
    return f"""# Errors

Wrong input raises `rf.InputError`: one or two sentences that say what was expected, what came and what to do. Its
`field` names the option, column or field of a request. Any other exception is a bug.

| where | how it ends |
|---|---|
| Python | `rf.InputError` with `field`; a subclass if a file cannot be written or a worker process died |
| command line, wrong input | one sentence on stderr, exit code {BAD_INPUT} |
| command line, Ctrl-C | exit code {INTERRUPTED}; `train --resume`, `run`, `tune`, `reproduce` continue later |
| command line, out of memory | one sentence, exit code {BAD_INPUT} |
| service, wrong request | status 4xx, `{{"error": sentence, "field": name}}`; [statuses](../../how-to/service.md) |
| service, its own fault | status 5xx with the same body; the log has the place, never the client's data |

```pycon
>>> import recfusion as rf
>>> try:
...     rf.make_model("eese")
... except rf.InputError as error:
...     print(str(error)[:21], error.field)
Unknown model 'eese': model

```
"""


def _reads(entry: Entry) -> str:
    asked = asked_signals(entry.reads)
    return "" if asked == BINARY else str(asked)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;").replace("$", r"\$").replace("*", r"\*")


def _short(value: Any) -> str:
    text = str(value).replace("|", r"\|")
    return text if len(text) <= 60 else f"{text[:57]}..."


def pages() -> dict[str, str]:
    """Return the generated files by name."""
    document = openapi()
    makers: dict[str, Callable[[], str]] = {
        "models.md": models_page,
        "command-options.md": commands_page,
        "settings.md": settings_page,
        "errors.md": errors_page,
        "routes.md": lambda: routes_page(document),
        "openapi.json": lambda: json.dumps(document, indent=1),
    }
    names = {f"{path.replace('.', '-')}.md": path for path in MODULES}
    return {name: make() for name, make in makers.items()} | {name: api_page(path) for name, path in names.items()}


def main() -> None:
    """Write the files that changed."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
