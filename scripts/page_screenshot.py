"""Draw the pictures of the page in docs/images: page, map, workbench, shop and phone, and thinning on the map.

    recfusion train --data ml-1m thinning-linear --out films
    python scripts/page_screenshot.py films docs/images [page map workbench shop phone thinning]

It serves the model and examples/shop/page.html on the ports 8000 and 8080 while it runs. It needs playwright and
Chromium.
"""

import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

SERVICE, SHOP, KEY = "http://127.0.0.1:8000", "http://127.0.0.1:8080", "a key for pictures only"
EXAMPLE = Path(__file__).parents[1] / "examples" / "shop"
FILMS = (2571, 541, 1240, 1214)  # The Matrix, Blade Runner, The Terminator, Alien
MORE = (260, 1196, 589, 1210, 1200, 1198, 913, 930, 1252, 903, 904, 912)  # Star Wars, Vertigo, Casablanca and others
PLACEMENTS = {
    "home": {"k": 10, "reranking": {"diversity": 0.3}},
    "basket": {"kind": "complete"},
    "product": {"kind": "similar", "k": 6, "where": "genres has 'Sci-Fi'"},
}
HEIGHT, PHONE = 860, 390
FADE, TICK, REST = 9, 66, 1200  # frames of a fade, milliseconds from one to the next, and of the last one


def ask(path: str, document: Any = None, method: str = "POST") -> Any:
    """Return the answer of the service to a request with the admin key."""
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(f"{SERVICE}/{path}", body, headers, method=method if body else "GET")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        sys.exit(f"{path}: {error.read().decode()}")


@contextmanager
def started(*command: str) -> Iterator[None]:
    """Run a command until the block ends."""
    environment = os.environ | {"PICTURE_KEY": KEY}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def wait_for_service() -> None:
    """Wait until the service answers."""
    for _ in range(300):
        try:
            ask("model")
            return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"No service at {SERVICE}.")


def make_traffic() -> None:
    """Save placements, ask for lists of random histories, and send the events of some of them."""
    version = ask("admin/placements")["version"]
    ask("admin/placements", {"placements": PLACEMENTS, "version": version}, "PUT")
    drawn, known = random.Random(0), [one["item"] for one in ask("recommend", {"history": [], "k": 200})["items"]]
    for n in range(240):
        placement = drawn.choices(["home", "product", ""], [5, 3, 1])[0]
        body: dict[str, Any] = {"placement": placement} if placement else {"k": 10}
        one = drawn.sample(known, 4)
        similar = placement == "product"
        found = ask("similar" if similar else "recommend", body | ({"item": one[0]} if similar else {"history": one}))
        for kind, share in (("click", 0.4 if similar else 0.25), ("purchase", 0.1), ("dislike", 0.04)):
            if found["items"] and drawn.random() < share:
                item = found["items"][min(int(drawn.expovariate(0.6)), len(found["items"]) - 1)]["item"]
                of = found.get("recommendation_id")
                ask("events", {"user": f"visitor {n}", "item": item, "kind": kind, "recommendation_id": of})


def link(films: tuple[int, ...], view: str = "list", **more: object) -> str:
    """Return the address of a view of the page."""
    parts = [f"history={film}" for film in films] + [f"view={view}"] * (view != "list")
    return f"{SERVICE}/#{'&'.join([*parts, *(f'{name}={quote(str(value))}' for name, value in more.items())])}"


@contextmanager
def opened(browser: Browser, address: str, width: int = 1205, scheme: Any = "light", **more: Any) -> Iterator[Page]:
    """Open a page in a fresh context and wait until it has loaded."""
    size = {"width": width, "height": more.pop("height", HEIGHT)}
    options: dict[str, Any] = {"viewport": size, "color_scheme": scheme, "reduced_motion": "reduce", **more}
    context = browser.new_context(**options)
    page = context.new_page()
    page.goto(address)
    if address.startswith(f"{SERVICE}/#"):
        page.locator("main[aria-busy=false]").wait_for()
    yield page
    context.close()


def shot(page: Page) -> Image.Image:
    """Return the pixels of a page."""
    page.wait_for_timeout(400)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def beside(*pictures: Image.Image) -> Image.Image:
    """Return pictures of the same height side by side."""
    whole = Image.new("RGB", (sum(one.width for one in pictures), pictures[0].height))
    for n, one in enumerate(pictures):
        whole.paste(one, (sum(other.width for other in pictures[:n]), 0))
    return whole


def draw_page(browser: Browser) -> Image.Image:
    """The list on a desktop in light colours, and two settings side by side on a phone in dark ones."""
    wish = json.dumps({"wish": {"genres": {"Action": -0.5}}})
    with opened(browser, link(FILMS, current=wish)) as page:
        wide = shot(page)
    hidden = link(FILMS, "compare", current=json.dumps({"popularity": -0.2}))
    with opened(browser, hidden, PHONE, "dark") as page:
        page.locator(".sides").evaluate("one => one.scrollIntoView({ block: 'start' })")
        return beside(wide, shot(page))


def draw_map(browser: Browser) -> Image.Image:
    """The map with a history, its list, and the reasons of one item."""
    with opened(browser, link(FILMS + MORE[:4] + MORE[6:8], "map")) as page:
        page.locator(".chart canvas").wait_for()
        page.locator("nav").evaluate("one => one.scrollIntoView({ block: 'start' })")
        return shot(page)


def draw_workbench(browser: Browser) -> Image.Image:
    """What lists led to, and the editor of placements."""
    with opened(browser, f"{SERVICE}/workbench", 800, height=1500) as page:
        page.get_by_label("Admin key").fill(KEY)
        page.get_by_role("button", name="Open").click()
        page.locator(".keeps").first.wait_for()
        left = shot(page)
        page.get_by_role("heading", name="Placements").evaluate("one => one.scrollIntoView({ block: 'start' })")
        return beside(left, shot(page))


def draw_shop(browser: Browser) -> Image.Image:
    """The example page of a shop with two lists of the service."""
    with opened(browser, f"{SHOP}/page.html?item={FILMS[0]}", 1000, height=760) as page:
        page.get_by_role("button", name="Add to the basket").click()
        page.locator("#with a").first.wait_for()
        return shot(page)


def draw_phone(browser: Browser) -> Image.Image:
    """A list, the open sheet of controls, and the map on a phone."""
    pictures: list[Image.Image] = []
    for view, scheme in (("list", "light"), ("list", "dark"), ("map", "dark")):
        with opened(browser, link(FILMS, view), PHONE, scheme, height=844) as page:
            if pictures and view == "list":
                page.get_by_text("Re-ranking and filters").click()
            else:
                page.locator("nav").evaluate("one => one.scrollIntoView({ block: 'start' })")
            pictures.append(shot(page))
    return beside(*pictures)


def draw_thinning(browser: Browser, path: Path) -> None:
    """Thinning on the map: items of a history fade, and the model restores them step by step."""
    shown: list[tuple[Image.Image, int]] = []
    with opened(browser, "about:blank", 1180, "dark", height=900, reduced_motion="no-preference") as page:
        page.clock.install()
        page.goto(link(FILMS + MORE, "map", seed=3))
        page.get_by_role("button", name="Thinning").click()
        page.get_by_role("button", name="Pause").click()
        page.mouse.move(0, 0)
        page.clock.pause_at(time.time() + 3600)
        chart, steps = page.locator(".chart"), page.get_by_role("slider", name="Step")
        for step in range(int(steps.get_attribute("max") or 0) + 1):
            steps.evaluate("(at, step) => { at.value = step; at.dispatchEvent(new Event('input')) }", str(step))
            for n in range(FADE):
                page.clock.run_for(TICK if n < FADE - 1 else 2000)  # its clock stands still otherwise
                picture = Image.open(io.BytesIO(chart.screenshot())).convert("RGB")
                shown.append((picture, REST if n == FADE - 1 else TICK))
    (first, _), *rest = shown
    more: dict[str, Any] = {"append_images": [one for one, _ in rest], "duration": [ms for _, ms in shown]}
    first.save(path, save_all=True, loop=0, quality=60, method=6, **more)


DRAWN: dict[str, Callable[[Browser], Image.Image]] = {
    "page": draw_page,
    "map": draw_map,
    "workbench": draw_workbench,
    "shop": draw_shop,
    "phone": draw_phone,
}


def main() -> None:
    """Draw the pictures that are asked for, or all."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    model, folder, wanted = sys.argv[1], Path(sys.argv[2]), sys.argv[3:] or [*DRAWN, "thinning"]
    with ExitStack() as stack:
        events = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "events.sqlite"
        start = "from recfusion.cli.main import main; main()"
        options = ["--port", "8000", "--events", str(events), "--admin-key-env", "PICTURE_KEY", "--origin", SHOP]
        stack.enter_context(started(sys.executable, "-c", start, "serve", model, *options))
        web = ["http.server", "8080", "--bind", "127.0.0.1", "--directory", str(EXAMPLE)]
        stack.enter_context(started(sys.executable, "-m", *web))
        playwright = stack.enter_context(sync_playwright())
        wait_for_service()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        if "workbench" in wanted:
            make_traffic()
        for name in wanted:
            if name == "thinning":
                draw_thinning(browser, folder / "map.webp")
            else:
                picture = DRAWN[name](browser).quantize(256, kmeans=2, dither=Image.Dither.NONE)
                picture.save(folder / f"{name}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
