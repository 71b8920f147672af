"""Draw docs/images/page.png: the page of a running service on a desktop in light colours, and on a phone in dark ones.

    recfusion train --all-users --out films && recfusion serve films --port 8000
    python scripts/page_screenshot.py http://127.0.0.1:8000 docs/images/page.png

It needs playwright and Chromium.
"""

import io
import json
import shutil
import sys
from urllib.parse import quote

import numpy as np
from matplotlib import image
from playwright.sync_api import Browser, sync_playwright

HISTORY = (2571, 541, 1240, 1214)  # The Matrix, Blade Runner, The Terminator, Alien
HEIGHT = 860


def shot(browser: Browser, address: str, width: int, scheme: str, settings: dict[str, object], more: str) -> np.ndarray:
    """Return the pixels of a view, (height, width, 3)."""
    context = browser.new_context(
        viewport={"width": width, "height": HEIGHT},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    history = "&".join(f"history={item}" for item in HISTORY)
    page.goto(f"{address}/#{history}&current={quote(json.dumps(settings))}{more}")
    page.locator("main[aria-busy=false]").wait_for()
    if more:
        page.locator(".sides").scroll_into_view_if_needed()
        page.locator(".sides").evaluate("one => one.scrollIntoView({ block: 'start' })")
    pixels = image.imread(io.BytesIO(page.screenshot()))[..., :3]
    context.close()
    return pixels


def main() -> None:
    """Draw the figure."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    address, path = sys.argv[1:]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        wide = shot(browser, address, 1205, "light", {"wish": {"genres": {"Action": -0.5}}}, "")
        phone = shot(browser, address, 389, "dark", {"popularity": -0.2}, "&view=compare")
        browser.close()
    image.imsave(path, np.hstack([wide, phone]))


if __name__ == "__main__":
    main()
