"""Draw docs/images/map.webp: thinning on the taste map of a running service, step by step.

    recfusion train --data ml-1m thinning-linear --out films && recfusion serve films --port 8000
    python scripts/map_animation.py http://127.0.0.1:8000 docs/images/map.webp

It needs playwright and Chromium.
"""

import io
import shutil
import sys
import time

from PIL import Image
from playwright.sync_api import Page, sync_playwright

# The Matrix, Blade Runner, Alien, Star Wars and others, and old thrillers such as Vertigo and Casablanca.
HISTORY, SEED = (2571, 541, 1240, 1214, 260, 1196, 589, 1210, 1200, 1198, 913, 930, 1252, 903, 904, 912), 3
WIDTH, HEIGHT = 1180, 900
FADE, TICK, REST = 9, 66, 1200  # frames of a fade, milliseconds from one to the next, and of the last one


def frames(page: Page) -> list[tuple[Image.Image, int]]:
    """Return pictures of the map with their milliseconds, while it fades from one step to the next."""
    chart, found = page.locator(".chart"), []
    steps = page.get_by_role("slider", name="Step")
    for step in range(int(steps.get_attribute("max") or 0) + 1):
        steps.evaluate("(at, step) => { at.value = step; at.dispatchEvent(new Event('input')) }", str(step))
        for n in range(FADE):
            page.clock.run_for(TICK if n < FADE - 1 else 2000)  # its clock stands still otherwise
            picture = Image.open(io.BytesIO(chart.screenshot())).convert("RGB")
            found.append((picture, REST if n == FADE - 1 else TICK))
    return found


def main() -> None:
    """Draw the animation."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    address, path = sys.argv[1:]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="dark")
        page.clock.install()
        page.goto(f"{address}/#{'&'.join(f'history={item}' for item in HISTORY)}&view=map&seed={SEED}")
        page.get_by_role("button", name="Thinning").click()
        page.get_by_role("button", name="Pause").click()
        page.mouse.move(0, 0)
        page.clock.pause_at(time.time() + 3600)
        shown = frames(page)
        browser.close()
    first, *rest = [picture for picture, _ in shown]
    first.save(path, save_all=True, append_images=rest, duration=[ms for _, ms in shown], loop=0, quality=60, method=6)


if __name__ == "__main__":
    main()
