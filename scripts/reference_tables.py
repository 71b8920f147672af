"""Rewrite the tables of control.md, diffusion.md and shop.md in docs/how-to, and docs/reference/commands.md.

Usage: python scripts/reference_tables.py
"""

from pathlib import Path
from typing import Any

from family_table import family_table
from pydantic import BaseModel

from recfusion.cli.main import command_line
from recfusion.inference.request import Filters, HistoryEntry, ListRequest, Record, Reranking
from recfusion.nightly.config import Shop

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "how-to" / "control.md"
COMMANDS = DOCS / "reference" / "commands.md"
DIFFUSION = DOCS / "how-to" / "diffusion.md"
SHOP = DOCS / "how-to" / "shop.md"
HEAD = ("field", "command line", "values", "default", "meaning")
FORMS: dict[str, type[Record]] = {"filters": Filters, "reranking": Reranking, "request": ListRequest}
TYPES = {"boolean": "true or false", "string": "text", "array": "ids", "object": "{column: number}"}


def reference_tables() -> dict[str, str]:
    """Return the tables by the names of their markers in the page."""
    tables = {name: _table(record, options=True) for name, record in FORMS.items()}
    return tables | {"entry": _table(HistoryEntry, options=False)}


def with_tables(text: str, tables: dict[str, str] | None = None) -> str:
    """Return a page with new tables between its markers (default: those of docs/how-to/control.md)."""
    for name, table in (tables or reference_tables()).items():
        text = _with_table(text, name, table)
    return text


def with_shop_keys(text: str) -> str:
    """Return the page about shops with the keys of their file."""
    lines = ["| key | default | meaning |\n|---|---|---|\n"]
    for name, field in Shop.model_fields.items():
        table = isinstance(field.default, BaseModel | dict)
        default = "required" if field.is_required() else "" if table else _default(field.default)
        lines.append(f"| `{f'[{name}]' if table else name}` | {default} | {field.description} |\n")
    return _with_table(text, "shop", "".join(lines))


def _with_table(text: str, name: str, table: str) -> str:
    start, end = f"<!-- {name} -->\n", "<!-- end -->"
    if text.count(start) != 1:
        raise SystemExit(f"Expected one place for the table {name}: add {start.strip()} and {end} to the page.")
    before, _, rest = text.partition(start)
    return f"{before}{start}{table}{end}{rest.partition(end)[2]}"


def commands_page() -> str:
    """Return the page of all commands; `recfusion COMMAND --help` has the options of each."""
    lines = [
        "# Commands\n\n",
        "The option `--help` after a command lists its options. Bad input ends with one sentence and exit code 2.\n\n",
        "| command | what it does |\n|---|---|\n",
    ]
    groups: list[tuple[str, Any]] = [("recfusion", command_line())]
    while groups:
        path, group = groups.pop(0)
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                groups.append((f"{path} {name}", command))
            else:
                lines.append(f"| `{path} {name}` | {' '.join(str(command.help).split())} |\n")
    return "".join(lines)


def _table(record: type[Record], *, options: bool) -> str:
    lines = [HEAD, ("---",) * len(HEAD)]
    for name, field in record.model_fields.items():
        if record is ListRequest and name in (*Filters.model_fields, "reranking"):
            continue
        schema = record.model_json_schema()["properties"][name]
        option = f"`{'-' if len(name) == 1 else '--'}{name.replace('_', '-')}`"
        default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
        lines.append((f"`{name}`", option, _values(name, schema), default, str(field.description)))
    shown = lines if options else [(first, *rest) for first, _, *rest in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in shown)


def _values(name: str, schema: Any) -> str:
    """Return the type or the bounds of a field in words."""
    schema = next((one for one in schema.get("anyOf", ()) if one.get("type") != "null"), schema)
    if name == "history":
        return "ids or entries"
    if schema.get("kind") == "places":
        return "{place: id}"
    if schema.get("kind") == "columns":
        inner = schema["additionalProperties"]
        return f"{{column: {inner['minimum']:g} to {inner['maximum']:g}}}"
    if schema.get("kind") in ("weights", "shares"):
        inner = schema["additionalProperties"]["additionalProperties"]
        return f"{{column: {{value: {inner['minimum']:g} to {inner['maximum']:g}}}}}"
    if "enum" in schema:
        return ", ".join(schema["enum"])
    if "enum" in (inner := schema.get("additionalProperties", {}).get("additionalProperties", {})):
        return f"{{column: {{value: {' or '.join(inner['enum'])}}}}}"
    if "minimum" in schema:
        return f"{schema['minimum']:,} to {schema['maximum']:,}" if abs(schema["maximum"]) <= 1e9 else "number"
    if "exclusiveMinimum" in schema:
        return f"above {schema['exclusiveMinimum']:g}, to {schema['maximum']:,g}"
    return TYPES[schema["type"]]


def _default(value: Any) -> str:
    return "" if value is None or value == () or value == {} else str(value).lower()


def main() -> None:
    """Rewrite the pages."""
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    variants = with_tables(DIFFUSION.read_text(encoding="utf-8"), {"family": family_table()})
    DIFFUSION.write_text(variants, encoding="utf-8")
    COMMANDS.write_text(commands_page(), encoding="utf-8")
    SHOP.write_text(with_shop_keys(SHOP.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
