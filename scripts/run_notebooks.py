"""Run the notebooks of docs/notebooks without Jupyter, and compare or write the outputs that they store.

Usage: python scripts/run_notebooks.py [--write]

A cell's output is what it prints, and the value of its last line: as HTML if the value has it, as a picture if it is a
figure. Only printed texts are compared; three dots stand for anything.
"""

import ast
import base64
import contextlib
import doctest
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
PAGES = FOLDER / "generated"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def notebooks() -> list[Path]:
    """Return the paths of the notebooks."""
    return sorted(FOLDER.glob("*.ipynb"))


def run_cell(code: str, module: ModuleType) -> list[dict[str, Any]]:
    """Run a cell and return its outputs in the notebook format."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), vars(module))
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), vars(module))
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append(
            {"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)}
        )
    if value is not None:
        outputs.append(
            {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": _shown(value)}
        )
    return outputs


def _shown(value: Any) -> dict[str, Any]:
    if hasattr(value, "savefig"):
        picture = io.BytesIO()
        value.savefig(picture, dpi=90, metadata={"Software": None})
        return {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": ["a figure"]}
    html = {"text/html": value._repr_html_().splitlines(keepends=True)} if hasattr(value, "_repr_html_") else {}
    return {"text/plain": repr(value).splitlines(keepends=True), **html}


def _text(outputs: list[dict[str, Any]]) -> str:
    return "".join("".join(one.get("text", ())) for one in outputs)


def run_notebook(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the notebook with new outputs, and the cells that print something else than what is stored."""
    document = json.loads(path.read_text(encoding="utf-8"))
    module, wrong = ModuleType("notebook"), list[str]()
    sys.modules["notebook"] = module
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for cell in document["cells"]:
                if cell["cell_type"] == "code":
                    outputs = run_cell("".join(cell["source"]), module)
                    if not doctest.OutputChecker().check_output(_text(cell["outputs"]), _text(outputs), FLAGS):
                        wrong.append(_text(outputs))
                    cell["outputs"] = outputs
        finally:
            os.chdir(before)
    return document, wrong


def page(path: Path) -> str:
    """Return a notebook with its stored outputs as a page of the site."""
    return "\n".join(_lines(json.loads(path.read_text(encoding="utf-8")), path.name))


def _lines(document: dict[str, Any], name: str) -> Iterator[str]:
    for number, cell in enumerate(document["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield f"{source}\n" + (f"\n[The notebook](../{name})\n" if not number else "")
            continue
        yield f"```python\n{source}\n```\n"
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                yield f'```{{raw}} html\n<img alt="figure" src="data:image/png;base64,{data["image/png"]}">\n```\n'
            elif "text/html" in data:
                yield f'`````{{raw}} html\n<div class="output">{"".join(data["text/html"])}</div>\n`````\n'
            else:
                yield f"```text\n{''.join(output.get('text') or data['text/plain'])}\n```\n"


def write_pages() -> None:
    """Write the pages of the site."""
    PAGES.mkdir(exist_ok=True)
    for path in notebooks():
        (PAGES / f"{path.stem}.md").write_text(page(path), encoding="utf-8")


def main() -> int:
    """Run all notebooks; return 1 if an output differs and is not written."""
    found, write = False, "--write" in sys.argv
    for path in notebooks():
        document, wrong = run_notebook(path)
        if write:
            path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        else:
            print("".join(f"{path.name} prints:\n{text}" for text in wrong), end="")
            found |= bool(wrong)
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
