"""From a slider to the new list on the page, and frames of its map with 20,000 items, in a real browser.

    python benchmarks/page.py my-model --out benchmarks/page.json

The history has ten popular items; each knob that is a slider moves forty times, and each time the page is given until
its list has changed, beside an empty request of the same page. The bar is 100 ms. The map zooms and moves for 80 frames
each; its items are generated, in clusters. The bar is 60 frames in a second, by the CPU time of the page's thread.
"""

import argparse
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import CDPSession, Page, sync_playwright
from serve import served

import recfusion as rf
from recfusion.core.files import write_json

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SWITCHES = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
KNOBS = ("popularity", "diversity", "adventurousness")
MOVES = 40
BAR, FRAME = 100.0, 1000 / 60  # ms
ITEMS, CATEGORIES = 20_000, 7
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


FRAMES = """async ([kind, times]) => {
    const at = document.querySelector(".chart canvas"), found = [], box = at.getBoundingClientRect();
    const next = () => new Promise((done) => requestAnimationFrame(done));
    let before = await next();
    for (let n = 0; n < times; n++) {
        const up = n % 40 < 20, x = box.left + 0.4 * box.width, y = box.top + 0.4 * box.height;
        const key = up ? "ArrowLeft" : "ArrowRight", wheel = { deltaY: up ? -40 : 40, clientX: x, clientY: y };
        const event = kind === "zoom" ? new WheelEvent("wheel", wheel) : new KeyboardEvent("keydown", { key });
        at.dispatchEvent(event);
        const now = await next();
        found.push(now - before);
        before = now;
    }
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


def generated_map() -> dict[str, Any]:
    """Return an answer of /map with many items in clusters."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 40, ITEMS)
    places = np.clip(rng.random((40, 2))[group] + rng.normal(0, 0.06, (ITEMS, 2)), 0, 1)
    users = np.sort((20_000 * rng.pareto(1.2, ITEMS)).astype(int) % 50_000)[::-1]
    column = {"name": "kind", "values": [f"Kind {n}" for n in range(CATEGORIES)], "of": (group % CATEGORIES).tolist()}
    names = [f"Item number {n}" for n in range(ITEMS)]
    found = {"items": [f"x{n}" for n in range(ITEMS)], "names": names, "users": users.tolist(), "columns": [column]}
    return found | {"x": places[:, 0].tolist(), "y": places[:, 1].tolist()}


def measured_map(page: Page, address: str) -> dict[str, Any]:
    """Return the milliseconds between frames while a map of many items zooms and moves, and of computing them."""
    answer = generated_map()
    page.route("**/map?*", lambda route: route.fulfill(json=route.fetch().json() | answer))
    page.goto(f"{address}&view=map")
    page.locator(".chart canvas").wait_for()
    page.locator("main[aria-busy=false]").wait_for()
    page.wait_for_timeout(1500)
    tools = page.context.new_cdp_session(page)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})
    found: dict[str, Any] = {"items": ITEMS}
    for kind in ("zoom", "move"):
        page.evaluate(FRAMES, [kind, 10])
        before = _computed(tools)
        own = spread(page.evaluate(FRAMES, [kind, 80]))
        own["CPU of a frame, ms"] = (_computed(tools) - before) / 80
        found[kind] = own | {"within": own["CPU of a frame, ms"] < FRAME}
    return found


def _computed(tools: CDPSession) -> float:
    """Return the milliseconds that the page's thread has computed, without waiting for a core."""
    found = {one["name"]: one["value"] for one in tools.send("Performance.getMetrics")["metrics"]}
    return 1000 * float(found["TaskDuration"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=["sliders", "map"], help="measure one of both; --out keeps the other")
    arguments = parser.parse_args()
    bundle = rf.Bundle.load(arguments.model)
    popular = np.argsort(-bundle.counts)[:10]
    history = "&".join(f"history={bundle.items['item'][int(column)]}" for column in popular)
    path = next(found for name in BROWSERS if (found := shutil.which(name)))
    with served(arguments.model) as port, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(SWITCHES))
        address = f"http://127.0.0.1:{port}/#{history}"
        figures: dict[str, Any] = {} if arguments.only == "map" else measured(browser.new_page(), address)
        if arguments.only != "sliders":
            figures["map"] = measured_map(browser.new_page(), address)
        browser.close()
    document = {"model": bundle.name, "items": len(bundle.items), **figures}
    if arguments.only and arguments.out and arguments.out.exists():
        document = json.loads(arguments.out.read_text(encoding="utf-8")) | figures
    for name, part in document.items():
        print(name, part)
    if arguments.out:
        write_json(arguments.out, document)


if __name__ == "__main__":
    main()
