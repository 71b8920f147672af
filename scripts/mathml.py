"""Render formulas as MathML, which browsers draw without a script: the site works offline."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

_KNOWN = {
    r"\dots": r"\ldots",
    r"\tfrac": r"\frac",
    r"\bigl": "",
    r"\bigr": "",
    r"\big": "",
    r"\Big": "",
    r"\textstyle": "",
}  # as docutils calls them


def _visit(writer: Any, node: nodes.math | nodes.math_block, *, block: bool) -> None:
    formula = re.sub(r"\\[a-zA-Z]+", lambda found: _KNOWN.get(found[0], found[0]), node.astext())
    try:
        writer.body.append(tex2mathml(formula, as_block=block))
    except MathError as error:
        raise ValueError(f"a formula cannot be rendered ({error}): {node.astext()}") from error
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer under the name mathml."""
    app.add_html_math_renderer(
        "mathml",
        (lambda writer, node: _visit(writer, node, block=False), None),
        (lambda writer, node: _visit(writer, node, block=True), None),
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
