"""The reference of the public Python names as Markdown: types and docstrings from the source, examples from a file."""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel

import recfusion
from recfusion import diffusion, testing
from recfusion.models.settings import Range

EXAMPLES = Path(__file__).parents[1] / "docs" / "reference" / "examples.txt"
MODULES = {"recfusion": recfusion, "recfusion.diffusion": diffusion, "recfusion.testing": testing}
Definition = ast.FunctionDef | ast.ClassDef


def examples(text: str) -> dict[str, str]:
    """Return name -> doctest of the file of examples; a section may serve several names."""
    sections = re.split(r"^== ", text, flags=re.MULTILINE)[1:]
    pairs = [section.split("\n", 1) for section in sections]
    return {name: body.strip() for names, body in pairs for name in names.split(", ")}


def public_names(module: ModuleType) -> list[str]:
    """Return the public names of a module without its sub-modules, classes first."""
    names = [name for name in module.__all__ if not inspect.ismodule(getattr(module, name)) and name[0] != "_"]
    return sorted(names, key=lambda name: (not isinstance(getattr(module, name), type), name.lower()))


def api_page(path: str) -> str:
    """Return the page of a module: each public name with its types, its docstring and an example."""
    module = MODULES[path]
    shown = examples(EXAMPLES.read_text(encoding="utf-8"))
    short = path.replace("recfusion", "rf", 1)
    if missing := [name for name in public_names(module) if f"{short}.{name}" not in shown]:
        raise SystemExit(f"Expected an example of {', '.join(missing)} in {EXAMPLES.name}: add it.")
    lines = [f"# {path}\n", _escape(inspect.getdoc(module) or "").split("\n\n")[0], ""]
    lines += ["The examples run one after another, in the order of [this file](../examples.txt).\n"]
    for name in public_names(module):
        lines += [f"## {short}.{name}\n", *_entry(f"{path}.{name}", getattr(module, name))]
        lines += ["```pycon", shown[f"{short}.{name}"], "```\n"]
    return "\n".join(lines)


def _entry(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, type):
        yield from _class(path, value)
    elif inspect.isroutine(value):
        found = _definition(inspect.unwrap(value))
        yield _directive("function", f"{path}{_signature(found)}", inspect.getdoc(value))
    else:
        kind = type(value).__name__ if isinstance(value, dict) else "alias"
        text = "The models by name." if isinstance(value, dict) else f"`{_escape(str(value))}`"
        yield _directive("data", path, f"{text} ({kind})")


def _class(path: str, kind: type) -> Iterator[str]:
    yield _directive("class", path, inspect.getdoc(kind))
    try:
        node = _definition(kind)
    except (OSError, TypeError, KeyError):
        return
    rows = list(_fields(kind))
    if rows:
        yield "| field | type | default | meaning |\n|---|---|---|---|"
        yield "".join(f"| `{name}` | `{_cell(of)}` | {default} | {_cell(doc)} |\n" for name, of, default, doc in rows)
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
            marks = {ast.unparse(mark) for mark in one.decorator_list}
            signature = "" if marks & {"property", "cached_property"} else _signature(one, own=True)
            role = "property" if not signature else "classmethod" if "classmethod" in marks else "method"
            yield _directive(role, f"{path}.{one.name}{signature}", ast.get_docstring(one))


def _fields(kind: type) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, type, default and meaning of the fields of a record or model, without private and learned ones."""
    source = {base: _annotations(base) for base in kind.__mro__ if "__annotations__" in vars(base)}
    if issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            default = "required" if field.is_required() else _value(field.get_default(call_default_factory=True))
            found = next((of[name] for of in source.values() if name in of), ("", ""))
            yield name, found[0], default, field.description or found[1]
    elif dataclasses.is_dataclass(kind):
        for one in dataclasses.fields(kind):
            if one.name.startswith("_") or "learned" in one.metadata:
                continue
            missing = one.default is dataclasses.MISSING
            made = one.default_factory is not dataclasses.MISSING
            default = (
                "made anew" if made else "required" if missing and one.init else "" if missing else _value(one.default)
            )
            found = next((of[one.name] for of in source.values() if one.name in of), ("", ""))
            declared = one.metadata.get("setting", Range(""))
            yield one.name, found[0], default, declared.doc or found[1]


@cache
def _annotations(kind: type) -> dict[str, tuple[str, str]]:
    """Return name -> (type, comment) of the fields that a class declares, as its source has them."""
    try:
        lines, _ = inspect.getsourcelines(kind)
    except (OSError, TypeError):
        return {}
    tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    found = {}
    for node in getattr(tree, "body", ()):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            comment = lines[(node.end_lineno or node.lineno) - 1].partition("  # ")[2].strip()
            found[node.target.id] = (ast.unparse(node.annotation), comment)
    return found


@cache
def _module_tree(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def _definition(value: Any) -> Any:
    """Return the syntax tree of a function or class."""
    file = inspect.getsourcefile(value)
    assert file is not None
    names = {
        node.name: node for node in ast.walk(_module_tree(file)) if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    return names[value.__name__]


def _signature(node: ast.FunctionDef, *, own: bool = False) -> str:
    arguments = ast.unparse(node.args)
    if own:
        arguments = re.sub(r"^(self|cls)(, )?", "", arguments)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({arguments}){returns}"


def _directive(kind: str, signature: str, text: str | None) -> str:
    body = _escape(inspect.cleandoc(text or ""))
    return f":::::{{py:{kind}}} {signature}\n\n{body}\n:::::\n"


def _escape(text: str) -> str:
    """Return a docstring as Markdown: no accidental formulas, HTML or emphasis."""
    return re.sub(r"(?<!`)<(?=[a-zA-Z/])", r"\\<", text).replace("$", r"\$").replace("*", r"\*").replace("__", r"\_\_")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")


def _value(value: Any) -> str:
    text = " ".join(repr(value).split()).replace("|", r"\|")
    return "" if text in ("None", "()", "{}") else f"`{text}`" if len(text) < 80 else f"`{type(value).__name__}`"


def all_names() -> Sequence[str]:
    """Return every public name as an example's heading names it."""
    return [
        f"{path.replace('recfusion', 'rf', 1)}.{name}"
        for path, module in MODULES.items()
        for name in public_names(module)
    ]
