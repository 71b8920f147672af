"""The page in a real browser: on a desk and on a phone, in light and in dark."""

import html
import json
import re
import shutil
import subprocess
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

# Each frame is as wide as a screen, which a window cannot always be; srcdoc keeps it open to the script outside.
MEASURE = """<!doctype html><meta charset="utf-8">{frames}<output></output><script>
addEventListener("load", () => {{
  const found = [...document.querySelectorAll("iframe")].map(({{ contentDocument: page, contentWindow: its }}) => {{
    for (const closed of page.querySelectorAll("details")) closed.open = true;
    page.querySelector(".results thead button").click();
    const names = [...page.querySelectorAll(".results tbody th")].map(head => head.firstChild.textContent);
    const charts = [...page.querySelectorAll("svg")].map(chart => chart.getBoundingClientRect().width);
    const mark = page.querySelector("svg use");
    return {{
      screen: its.innerWidth, root: page.documentElement.scrollWidth, body: page.body.scrollWidth, names, charts,
      ground: its.getComputedStyle(page.body).backgroundColor, mark: its.getComputedStyle(mark).fill,
      drawn: mark.getBoundingClientRect().width,
    }};
  }});
  document.querySelector("output").textContent = JSON.stringify(found);
}});
</script>"""
PAGES = ("ordinary", "real", "strange")


@pytest.fixture(scope="module", params=SCHEMES)
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[Any, Any]]:
    """What a browser finds in each page at each width, with the scheme of its colours."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"no browser found: looked for {', '.join(BROWSERS)}")
    folder: Path = tmp_path_factory.mktemp("browser")
    shown = {(name, width): rendered(name) for name in PAGES for width in WIDTHS}
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


def test_ground_and_charts_follow_the_scheme(measured: tuple[str, dict[Any, Any]]) -> None:
    scheme, pages = measured
    for found in pages.values():
        assert (lightness(found["ground"]) > 600) == (scheme == "light")
        assert (lightness(found["mark"]) < 400) == (scheme == "light")


def test_charts_are_drawn_and_as_wide_as_the_screen_allows(measured: tuple[str, dict[Any, Any]]) -> None:
    for (_, width), found in measured[1].items():
        assert found["drawn"] > 0  # what marks refer to is found
        assert 320 < found["charts"][0] < width


def test_a_click_on_a_head_sorts_the_table(measured: tuple[str, dict[Any, Any]]) -> None:
    assert measured[1]["ordinary", 1280]["names"] == ["ease", "near", "slim"]
