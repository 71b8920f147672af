"""Build the documentation site into build/docs, offline; warnings, wrong numbers and broken links are errors.

Usage: python scripts/build_docs.py [OUTPUT]
"""

import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from draw_gallery import FOLDER as GALLERY
from draw_gallery import gallery_page
from reference_pages import main as write_reference
from run_notebooks import write_pages as write_notebooks
from sphinx.cmd.build import build_main

ROOT = Path(__file__).parents[1]
START = "docs/index.html"


class Page(HTMLParser):
    """The links and anchors of an HTML page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the ids and addresses of a tag."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value and not (tag == "link" and value.startswith("http")):
                self.links.add(value)


@cache
def _page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def broken_links(site: Path) -> list[str]:
    """Return the links within a site that lead nowhere, and files that it would load from the network."""
    wrong = []
    for path in sorted(path for path in site.rglob("*.html") if "_static" not in path.parts):
        page = _page(path)
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or link.startswith("//"):
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if not target.exists():
                wrong.append(f"{path.relative_to(site)}: {link} does not exist")
            elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in _page(target).anchors:
                wrong.append(f"{path.relative_to(site)}: {link} has no such place")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="(https?:[^"]+)"', path.read_text(encoding="utf-8"))
        wrong += [f"{path.relative_to(site)}: loads {address}" for address in loaded]
    return wrong


def llms_text(output: Path) -> str:
    """Return llms.txt: the pages with their first sentences, for programs that read documentation."""
    lines = ["# recfusion\n", "> Trains, compares and serves top-N recommenders on an ordinary CPU.\n"]
    for kind in ("tutorials", "how-to", "explanation", "reference", "project"):
        lines.append(f"\n## {kind}\n")
        for source in sorted((ROOT / "docs" / kind).rglob("*.md")):
            page = source.relative_to(ROOT).with_suffix(".html")
            if source.stem != "index" and (output / page).exists():
                title, *rest = source.read_text(encoding="utf-8").split("\n\n")
                first = next((text for text in rest if re.match(r"[A-Z]|`[^`]", text)), "")
                plain = re.sub(r"<!--.*?-->|\[([^]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
                sentence = plain.partition(". ")[0].rstrip(".")
                lines.append(f"- [{title.strip('# `')}]({page}): {sentence}.")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Build the site, check its links, and return the exit code."""
    output = Path(sys.argv[1] if sys.argv[1:] else ROOT / "build" / "docs").resolve()
    write_reference()
    write_notebooks()
    (GALLERY / "index.md").write_text(gallery_page(), encoding="utf-8")
    code = build_main(["-q", "-E", "-W", "--keep-going", "-c", str(ROOT / "docs"), str(ROOT), str(output)])
    if code:
        return code
    redirect = f'<!doctype html><title>recfusion</title><meta http-equiv="refresh" content="0; url={START}">'
    (output / "index.html").write_text(f'{redirect}<a href="{START}">recfusion</a>\n', encoding="utf-8")
    (output / "llms.txt").write_text(llms_text(output), encoding="utf-8")
    wrong = broken_links(output)
    print("\n".join(wrong) or f"{len(list(output.rglob('*.html')))} pages, all links work: {output / 'index.html'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
