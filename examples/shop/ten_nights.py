"""Ten nights of a messy shop with a running service: events, returns, new products, a forgotten customer, and kills.

    python examples/shop/ten_nights.py FOLDER

writes two shops into FOLDER. Both get the same messy orders (see messy_shop.py) and events. In one, the nightly run is
killed in another phase each night and started again; a service serves its model. After each night the script checks
that both shops have the same model, that nothing was lost, and that the better recipe is served. One customer asks to
be forgotten: the night forgets, then the shop removes the customer from its orders and empties forget.txt, and from
then on no file at all holds the customer. It needs the extra `serve` and takes a few minutes.
"""

# ruff: noqa: T201  (an example prints)

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from messy_shop import CANCELLED, ENCODING, Line, MessyShop, write_orders

from recfusion.nightly.config import read_shop
from recfusion.nightly.report import Night
from recfusion.nightly.run import PHASES, run_night
from recfusion.server.event_store import Event, Store

NIGHTS, FORGOTTEN, FORGET_NIGHT, DROP_NIGHT, QUIET_NIGHT = 10, "kunde7@beispiel.de", 6, 5, 7
MODELS = {
    1: "popularity",
    2: "thinning-linear",
    4: "popularity",
    6: "thinning-fast",
}  # the recipe from this night on
KEY = "a key of the example"
SHOP = """folder = "shop"
orders = "orders-*.csv"
products = "products.csv"
events = "shop.events.sqlite"
forget = "forget.txt"
model = "{model}"
{service}

[source]
rows = "Status != '{cancelled}'"
"""
FIRST_DAYS, DAYS = 100, 4  # of orders before the first night, and each night
KILL = """
import os, signal, sys
from pathlib import Path
from recfusion.nightly.config import read_shop
from recfusion.nightly.run import run_night
kill = lambda phase: os.kill(os.getpid(), signal.SIGKILL) if phase == sys.argv[2] else None
run_night(read_shop(Path(sys.argv[1])), on_phase=kill)
"""


def main(folder: Path) -> None:
    calm, killed = folder / "calm", folder / "killed"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shop = MessyShop.of(lines=3_000)
    orders: list[Line] = []
    sent: list[Line] = []
    with Service(killed, port) as service:
        for night in range(1, NIGHTS + 1):
            today = FIRST_DAYS + DAYS * (night - 1)
            bought = shop.between(today - DAYS if night > 1 else 0, today)
            if night > FORGET_NIGHT:
                bought = [line for line in bought if line.customer != FORGOTTEN]
            # The service hears of these at once; some of them are in the orders, too.
            online = [] if night in (1, QUIET_NIGHT) else [line for line in bought[::2] if line.counts]
            in_orders = [line for number, line in enumerate(bought) if line not in online or number % 10 == 0]
            for place in (calm, killed):
                place.mkdir(parents=True, exist_ok=True)
                (place / "shop.toml").write_text(
                    SHOP.format(model=model_of(night), service=address(place, port), cancelled=CANCELLED)
                )
                (place / "forget.txt").write_text(FORGOTTEN if night == FORGET_NIGHT else "")
                write_orders(place / f"orders-{night:02d}.csv", in_orders)
                shop.write_products(place / "products.csv", today)
            record(calm, online)
            service.post_events(online)
            orders, sent = orders + [line for line in in_orders if line.counts], sent + online
            if night == DROP_NIGHT:
                check_refusal(killed)
            killed_in = PHASES[night - 2] if 2 <= night < 2 + len(PHASES) else None
            if killed_in:
                code = subprocess.run(
                    [sys.executable, "-c", KILL, str(killed / "shop.toml"), killed_in], check=False
                ).returncode
                check(code == -signal.SIGKILL, f"the run was killed in the phase {killed_in}")
            one, _ = run_night(read_shop(calm / "shop.toml"))
            other, _ = run_night(read_shop(killed / "shop.toml"))
            service.start()
            check_night(calm, killed, one, other, orders, sent, service)
            if night >= FORGET_NIGHT:
                check(other.forgotten == 1, "the customer stays forgotten")
                for place in (calm, killed):
                    check_forgotten(place, first=night == FORGET_NIGHT)
            told = f", killed in the phase '{killed_in}' and run again" if killed_in else ""
            print(f"night {night:2}{told}: {re.sub(r' seconds=[0-9.]+', '', other.line().split(' ', 1)[1])}")
    print(f"{NIGHTS} nights: both shops have the same models, nothing is lost, the forgotten customer is in no file.")


def check_night(
    calm: Path, killed: Path, one: Night, other: Night, orders: list[Line], sent: list[Line], service: "Service"
) -> None:
    """Check one night of the two shops."""
    weights = [(place / "shop" / "model.safetensors").read_bytes() for place in (calm, killed)]
    check(weights[0] == weights[1], "both shops have the same model")
    check(one.counts == other.counts and one.outcome == other.outcome, "both reports have the same counts and outcome")
    gone = {FORGOTTEN} if other.forgotten else set()
    days: dict[tuple[str, str, bool], set[date]] = {}
    for line in orders:
        days.setdefault((line.customer, line.product, line.quantity > 0), set()).add(line.day)

    def is_ordered(line: Line) -> bool:
        ordered = days.get((line.customer, line.product, line.quantity > 0), set())
        return not ordered.isdisjoint({line.day, line.day + timedelta(days=1)})  # events are at 15:00

    new = [line for line in sent if not is_ordered(line)]
    kept = [line for line in (*orders, *new) if line.customer not in gone]
    check(other.counts.customers == len({line.customer for line in kept}), "every customer is read")
    check(other.counts.rows == len(kept), "every order and event is read once")
    check(
        other.events == len([line for line in sent if line.customer not in gone]), "every acknowledged event is there"
    )
    means = [recipe["mean"] for name in ("new", "old") if (recipe := other.comparison[name])]
    used = other.comparison["old" if other.outcome == "old" else "new"]
    check(used["mean"] == max(means), "the better recipe is used")
    check(service.version() == other.version, "the service serves the model of this night")


def check_forgotten(place: Path, *, first: bool) -> None:
    """Check that no file holds the forgotten customer; in the first night the shop removes it from its own files."""
    given = [*sorted(place.glob("orders-*.csv")), place / "forget.txt"]
    written = [path for path in place.rglob("*") if path.is_file() and path not in given]
    found = [path.name for path in written if FORGOTTEN.encode() in path.read_bytes()]
    check(found == [], "no written file holds the forgotten customer")
    if first:
        for path in given:
            lines = path.read_text(encoding=ENCODING).splitlines(keepends=True)
            path.write_text("".join(line for line in lines if FORGOTTEN not in line), encoding=ENCODING, newline="")
    found = [path.name for path in given if FORGOTTEN.encode() in path.read_bytes()]
    check(found == [], "no file of the shop holds the forgotten customer")


def check_refusal(place: Path) -> None:
    """A truncated export is refused, and the model stays."""
    first = place / "orders-01.csv"
    whole, model = first.read_bytes(), (place / "shop" / "config.json").read_bytes()
    first.write_bytes(b"".join(whole.splitlines(keepends=True)[:300]))
    night, _ = run_night(read_shop(place / "shop.toml"))
    check(
        night.outcome == "refused" and (place / "shop" / "config.json").read_bytes() == model, "a sharp drop is refused"
    )
    print(f"night {DROP_NIGHT:2}, with a truncated file: {night.sentence}")
    first.write_bytes(whole)


def check(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"Expected that {what}, which is not so.")


def model_of(night: int) -> str:
    return MODELS[max(first for first in MODELS if first <= night)]


def address(place: Path, port: int) -> str:
    return f'service = "http://127.0.0.1:{port}"\nadmin_key_env = "SHOP_KEY"' if place.name == "killed" else ""


def record(place: Path, lines: list[Line]) -> None:
    """Store events as the service does."""
    store = Store(place / "shop.events.sqlite")
    with store.writing():
        store.add([Event(one["user"], one["item"], one["kind"], one["time"]) for one in map(event, lines)])
    store.close()


def event(line: Line) -> dict[str, Any]:
    when = datetime.combine(line.day, datetime.min.time(), UTC) + timedelta(hours=15)
    kind = "have" if line.quantity > 0 else "return"
    return {"user": line.customer, "item": line.product, "kind": kind, "time": int(when.timestamp())}


class Service:
    """`recfusion serve` in a process of its own, started once there is a model."""

    def __init__(self, place: Path, port: int) -> None:
        self.place, self.port = place, port
        self.process: subprocess.Popen[bytes] | None = None
        os.environ["SHOP_KEY"] = KEY.replace(" ", "-")

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)

    def start(self) -> None:
        if self.process is None:
            command = [sys.executable, "-m", "recfusion", "serve", "shop", "--port", str(self.port)]
            keys = ["--api-key-env", "SHOP_KEY", "--admin-key-env", "SHOP_KEY"]
            quiet = subprocess.DEVNULL
            self.process = subprocess.Popen([*command, *keys], cwd=self.place, stdout=quiet, stderr=quiet)
            for _ in range(240):
                try:
                    if self.ask("GET", "/ready")["ready"]:
                        return
                except OSError:
                    time.sleep(0.25)
            raise SystemExit("The service did not start within a minute.")

    def post_events(self, lines: list[Line]) -> None:
        if lines:
            self.ask("POST", "/events/batch", {"events": [event(line) for line in lines]})

    def version(self) -> str:
        return str(self.ask("GET", "/model")["models"][0]["version"])

    def ask(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['SHOP_KEY']}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.loads(answer.read())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
