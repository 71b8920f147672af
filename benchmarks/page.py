"""From a slider to the new list on the page, in a real browser, beside an empty request of the same page.

    python benchmarks/page.py my-model --out benchmarks/page.json

A history of ten popular items is on the shelf; each knob that is a slider moves forty times, and each time the page is
given until its list has changed. The bar is 100 ms.
"""

import argparse
import shutil
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright
from serve import served

import recfusion as rf
from recfusion.core.files import write_json

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
KNOBS = ("popularity", "diversity", "adventurousness")
MOVES = 40
BAR = 100.0  # ms
EMPTY = """async (times) => {
    const found = [];
    for (let n = 0; n < times; n++) {
        const began = performance.now();
        await (await fetch("live")).text();
        found.push(performance.now() - began);
    }
    return found;
}"""
MOVE = """async ([knob, times]) => {
    const found = [], slider = document.getElementById(knob), main = document.querySelector("main");
    const settled = () => new Promise((done) => {
        const look = () => (main.getAttribute("aria-busy") === "false" ? done() : setTimeout(look, 1));
        look();
    });
    for (let n = 1; n <= times; n++) {
        const began = performance.now();
        slider.value = n % 2 ? 0.2 + n / 100 : 0;
        slider.dispatchEvent(new Event("input"));
        await settled();
        found.push(performance.now() - began);
        await new Promise((done) => setTimeout(done, 30));
    }
    slider.value = 0;
    slider.dispatchEvent(new Event("input"));
    await settled();
    return found;
}"""


def spread(milliseconds: list[float]) -> dict[str, float]:
    """Return the median and the 95th percentile."""
    return {"median, ms": statistics.median(milliseconds), "95 in 100, ms": float(np.quantile(milliseconds, 0.95))}


def measured(page: Page, address: str) -> dict[str, Any]:
    """Return all figures of an open page."""
    page.goto(address)
    page.locator("main[aria-busy=false]").wait_for()
    page.wait_for_timeout(500)
    found: dict[str, Any] = {"empty request": spread(page.evaluate(EMPTY, MOVES))}
    for knob in KNOBS:
        own = spread(page.evaluate(MOVE, [knob, MOVES]))
        found[knob] = own | {"within": own["95 in 100, ms"] < BAR}
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    bundle = rf.Bundle.load(arguments.model)
    popular = np.argsort(-bundle.counts)[:10]
    shelf = "&".join(f"shelf={bundle.items['item'][int(column)]}" for column in popular)
    path = next(found for name in BROWSERS if (found := shutil.which(name)))
    with served(arguments.model) as port, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(SWITCHES))
        figures = measured(browser.new_page(), f"http://127.0.0.1:{port}/#{shelf}")
        browser.close()
    document = {"model": bundle.name, "items": len(bundle.items), **figures}
    for name, part in document.items():
        print(name, part)
    if arguments.out:
        write_json(arguments.out, document)


if __name__ == "__main__":
    main()
