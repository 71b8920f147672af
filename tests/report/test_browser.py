"""The page in a real browser: desktop and phone widths, light and dark."""

import html
import json
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from test_page import rendered

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTHS = (1280, 390)
SWITCHES = (
    "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking disable-component-update "
    "disable-sync enable-logging=stderr dump-dom"
)
SCHEMES = {"light": 1, "dark": 0}  # Chromium's numbers for them

# Frames can be narrower than a browser window; srcdoc lets the outer script read them.
MEASURE = """<!doctype html><meta charset="utf-8">{frames}<output></output><script>
addEventListener("load", () => {{
  const found = [...document.querySelectorAll("iframe")].map(({{ contentDocument: page, contentWindow: its }}) => {{
    for (const closed of page.querySelectorAll("details")) closed.open = true;
    page.querySelector(".results thead button").click();
    const names = [...page.querySelectorAll(".results tbody th")].map(head => head.firstChild.textContent);
    const charts = [...page.querySelectorAll("svg")].map(chart => chart.getBoundingClientRect().width);
    const mark = page.querySelector("svg .best > .dot");
    return {{
      screen: its.innerWidth, root: page.documentElement.scrollWidth, body: page.body.scrollWidth, names, charts,
      ground: its.getComputedStyle(page.body).backgroundColor, mark: its.getComputedStyle(mark).fill,
      drawn: mark.getBoundingClientRect().width,
    }};
  }});
  document.querySelector("output").textContent = JSON.stringify(found);
}});
</script>"""
PAGES = ("ordinary", "real", "strange", "recoloured")
CHANGED = "rgb(1, 2, 3)"


def page_text(name: str) -> str:
    """Return a page; "recoloured" is the ordinary one with another accent colour in its style sheet."""
    if name != "recoloured":
        return rendered(name)
    sheet = resources.files("recfusion.report").joinpath("templates", "style.css").read_text(encoding="utf-8")
    changed = re.sub("--accent: [^;]+", f"--accent: {CHANGED}", sheet)
    return rendered("ordinary").replace(sheet.strip(), changed.strip())


@pytest.fixture(scope="module", params=SCHEMES)
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[Any, Any]]:
    """Return the colour scheme, and what a browser measures on each page at each width."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"no browser found: looked for {', '.join(BROWSERS)}")
    folder: Path = tmp_path_factory.mktemp("browser")
    shown = {(name, width): page_text(name) for name in PAGES for width in WIDTHS}
    frames = "".join(
        f'<iframe width="{width}" height="900" style="border:0" srcdoc="{html.escape(page)}"></iframe>'
        for (_, width), page in shown.items()
    )
    (folder / "measure.html").write_text(MEASURE.format(frames=frames), encoding="utf-8")
    switches = [*SWITCHES.split(), f"blink-settings=preferredColorScheme={SCHEMES[request.param]}"]
    command = [browser, *(f"--{switch}" for switch in switches), f"--user-data-dir={folder / 'profile'}"]
    command.append((folder / "measure.html").as_uri())
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    output = re.search(r"<output>(.+)</output>", ran.stdout)
    assert output is not None, ran.stderr
    assert "CONSOLE" not in ran.stderr
    return request.param, dict(zip(shown, json.loads(html.unescape(output[1])), strict=True))


def test_no_page_is_wider_than_its_screen(measured: tuple[str, dict[Any, Any]]) -> None:
    for (name, width), found in measured[1].items():
        assert found["screen"] == width
        assert max(found["root"], found["body"]) <= width, name


def lightness(colour: str) -> int:
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3])


def test_background_and_charts_follow_the_colour_scheme(measured: tuple[str, dict[Any, Any]]) -> None:
    scheme, pages = measured
    for (name, _), found in pages.items():
        assert (lightness(found["ground"]) > 600) == (scheme == "light")
        if name != "recoloured":
            assert (lightness(found["mark"]) < 400) == (scheme == "light")


def test_a_colour_changed_in_the_style_sheet_alone_changes_the_charts(measured: tuple[str, dict[Any, Any]]) -> None:
    marks = {name: found["mark"] for (name, _), found in measured[1].items()}
    assert marks["recoloured"] == CHANGED != marks["ordinary"]


def test_charts_are_drawn_and_as_wide_as_the_screen_allows(measured: tuple[str, dict[Any, Any]]) -> None:
    for (_, width), found in measured[1].items():
        assert found["drawn"] > 0
        assert 320 < found["charts"][0] < width


def test_a_click_on_a_head_sorts_the_table(measured: tuple[str, dict[Any, Any]]) -> None:
    assert measured[1]["ordinary", 1280]["names"] == ["ease", "near", "slim"]


@pytest.mark.parametrize("name", ["ordinary", "real", "strange"])
def test_a_printed_page_shows_everything(name: str, tmp_path: Path) -> None:
    """On A4, tables fit, folded tables are open, and the last page has more than the footer."""
    pytest.importorskip("playwright")
    from playwright.sync_api import sync_playwright

    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"no browser found: looked for {', '.join(BROWSERS)}")
    (tmp_path / "page.html").write_text(page_text(name), encoding="utf-8")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = opened.new_page(viewport={"width": 703, "height": 1000})  # 210 mm less two margins of 12 mm, at 96 dpi
        page.goto((tmp_path / "page.html").as_uri())
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        folded = "all => all.filter(one => !one.open || one.lastElementChild.getBoundingClientRect().height < 5).length"
        assert page.locator("details").evaluate_all(folded) == 0
        wide = "all => all.map(one => one.scrollWidth - one.clientWidth).filter(over => over > 1)"
        assert page.locator(".tablebox").evaluate_all(wide) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 703
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details.settings[open]").count() == 0
        page.pdf(path=tmp_path / "page.pdf", prefer_css_page_size=True)
        opened.close()
    if shutil.which("pdftotext"):
        text = subprocess.run(["pdftotext", "page.pdf", "-"], cwd=tmp_path, capture_output=True, text=True, check=True)
        last = text.stdout.rstrip("\f").split("\f")[-1]
        assert len(last.split()) > 3  # words of the footer
