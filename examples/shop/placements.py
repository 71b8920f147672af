"""Placements and boosts of a generated shop, end to end: a night of training, a service, and a list for each placement.

    python examples/shop/placements.py FOLDER

writes a messy shop (see messy_shop.py) with margins into FOLDER, runs `recfusion nightly` and
`recfusion serve --config`, and prints what a customer sees at each placement. It ends the service.
"""

# ruff: noqa: T201  (an example prints)

import hashlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from messy_shop import ENCODING
from messy_shop import main as write_shop

CUSTOMER = "kunde7@beispiel.de"
PLACEMENTS = """key_file = "keys.toml"

[placements.home]
where = "Bestand > 0"
k = 6
at_most = {Warengruppe = 3}
reranking = {boost = {Marge = 0.5}, new_column = "Neu seit", new_share = 0.3, pins = {1 = "A-00018"}}

[placements.plain]
k = 6

[placements.product]
kind = "similar"
where = "Bestand > 0"
k = 3

[placements.basket]
kind = "complete"
where = "Bestand > 0 and Preis < 50"
n = 3

[placements.newsletter]
k = 3
not_again_days = 14
"""
REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("home", "/recommend", {"user": CUSTOMER}),
    ("plain", "/recommend", {"user": CUSTOMER}),
    ("product", "/similar", {"item": "A-00007"}),
    ("basket", "/complete", {"history": ["A-00001", "A-00007"]}),
    ("newsletter", "/recommend", {"user": CUSTOMER}),
    ("newsletter", "/recommend", {"user": CUSTOMER}),
]


def add_columns(products: Path) -> None:
    """Add a margin to each product."""
    head, *rows = products.read_text(encoding=ENCODING).splitlines()
    rng = np.random.default_rng(7)
    more = [f"{row};{rng.integers(5, 60)}" for row in rows]
    products.write_text("\n".join([f"{head};Marge", *more, ""]), encoding=ENCODING)


def ask(address: str, key: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(address, json.dumps(body).encode(), headers), timeout=30) as answer:
        return dict(json.loads(answer.read()))


def show(name: str, answer: dict[str, Any]) -> None:
    print(f"{name}:")
    for item in answer["alternatives"][0]["items"] if "alternatives" in answer else answer["items"]:
        about = item["columns"]
        details = ", ".join(
            f"{column} {about[column]}" for column in ("Warengruppe", "Preis", "Bestand", "Marge", "Neu seit")
        )
        print(f"  {item['rank']}. {item['name']} ({details})")


def main(folder: Path) -> None:
    """Run a night and show the lists of each placement."""
    write_shop(folder, lines=2_000, model="thinning-features")
    add_columns(folder / "products.csv")
    with (folder / "shop.toml").open("a", encoding="utf-8") as file:
        file.write(PLACEMENTS)
    key = secrets.token_hex(16)
    digest = hashlib.sha256(key.encode()).hexdigest()
    names = json.dumps(sorted({name for name, _, _ in REQUESTS}))
    table = f'[website]\nsha256 = "{digest}"\nscopes = ["read", "events"]\nplacements = {names}\n'
    (folder / "keys.toml").write_text(table, encoding="utf-8")
    command = [sys.executable, "-m", "recfusion"]
    subprocess.run([*command, "nightly", str(folder / "shop.toml")], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = [*command, "serve", "--config", str(folder / "shop.toml"), "--port", str(port)]
    service = subprocess.Popen(serve, env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/ready")
        for name, route, body in REQUESTS:
            show(name, ask(f"{address}{route}", key, body | {"placement": name}))
        try:
            ask(f"{address}/recommend", key, {"user": CUSTOMER, "placement": "home", "where": "Bestand == 0"})
        except urllib.error.HTTPError as error:
            print(f"A client that asks for sold-out products gets {error.code}: {json.loads(error.read())['error']}")
    finally:
        service.terminate()
        service.wait(60)


def wait_for(address: str) -> None:
    """Wait for at most a minute until the service answers."""
    until = time.monotonic() + 60
    while True:
        try:
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=5).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("Usage: python examples/shop/placements.py FOLDER")
    main(Path(sys.argv[1]))
