"""Sphinx settings of the site; `python scripts/build_docs.py` builds it.

The source folder is the repository, so that links to results, benchmarks and studies work on the site as in a checkout.
"""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from measured import check_document

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "recfusion"
author = copyright = "The recfusion authors"  # noqa: A001
release = version = installed_version("recfusion")
extensions = ["myst_parser", "mathml"]
html_math_renderer = "mathml"
root_doc = "docs/index"
include_patterns = [
    *(
        "docs/**.md",
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        ".github/SECURITY.md",
        ".github/CODE_OF_CONDUCT.md",
    ),
    *("results/*.md", "benchmarks/*.md", "studies/README.md", "examples/**.md", "studies/results/*.md"),
]
exclude_patterns = [
    ".git",
    ".venv",
    "build",
    "dist",
    "src",
    "tests",
    "scripts",
    "requirements",
    "**/.*cache",
]
exclude_patterns += ["**/__pycache__"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
myst_fence_as_directive = ["math"]
# Some pages start below level 1 on purpose; a type variable T is no attribute T.
suppress_warnings = ["myst.header", "misc.highlighting_failure", "ref.python"]
pygments_style = "a11y-high-contrast-light"

html_theme = "pydata_sphinx_theme"
html_title = "recfusion"
html_static_path = ["_static"]
html_favicon = "_static/icon.svg"
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_sidebars: dict[str, list[str]] = {"docs/gallery/index": []}
html_show_sourcelink = False
html_context = {"default_mode": "auto"}  # the colours of the system
html_copy_source = False
html_theme_options = {
    "logo": {"text": "recfusion"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def setup(app: "Sphinx") -> None:
    """Check the measured numbers of every page that is read."""
    app.connect("source-read", lambda _, name, text: check_document(name, text[0]))
