"""The files of the page: small, self-contained, and within a strict content security policy."""

import gzip
import re
from pathlib import Path

import recfusion.server

PAGE = Path(recfusion.server.__file__).parent / "page"
FILES = {path.name: path.read_text(encoding="utf-8") for path in PAGE.iterdir()}
OTHERS = ("routes.", "workbench.", "recfusion-list.")  # /docs, the workbench, and the element for pages of a shop
OURS = {name: text for name, text in FILES.items() if not name.startswith(OTHERS)}


MAP = {"map.js", "map.css"}  # loaded when the map is opened


def test_the_page_is_at_most_90_kilobytes_and_the_map_60_more() -> None:
    sizes = {name: len(text.encode()) for name, text in OURS.items()}
    assert sum(size for name, size in sizes.items() if name not in MAP) <= 90_000
    assert sum(sizes[name] for name in MAP) <= 60_000
    assert len(gzip.compress("".join(OURS.values()).encode())) <= 40_000


def test_no_file_names_another_server() -> None:
    for name, text in FILES.items():
        named = re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]+", text)
        assert set(named) <= {"http://www.w3.org"}, name  # the SVG namespace


def test_nothing_is_inline_and_nothing_writes_html() -> None:
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=", FILES["index.html"])
    for name, text in FILES.items():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            name
        )


def test_every_module_is_there_and_imported() -> None:
    imported = {
        name
        for text in OURS.values()
        for name in re.findall(r'(?:from |import\(|new URL\()"(?:\./)?([a-z]+\.(?:js|css))"', text)
    }
    linked = set(re.findall(r'"static/([a-z.]+)"', FILES["index.html"]))
    assert imported | linked | {"index.html"} == set(OURS)


def test_no_re_ranking_control_is_declared_in_javascript() -> None:
    """The page draws its controls from /model; "popularity" and "shares" also name a basis and a kind of control."""
    for name, text in OURS.items():
        assert not re.search(r"\b(adventurousness|diversity|calibration|wish)\b", text), name
