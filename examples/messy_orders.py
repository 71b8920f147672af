"""Print the orders of a small shop as a CSV file with the usual faults: python examples/messy_orders.py > orders.csv

Semicolons, a title above the header, German names and dates, cancelled orders, a line without a product, and a return.
"""

import random
from collections.abc import Iterator

TEA = [f"Tea {n}" for n in range(12)]
MUGS = [f"Mug {n}" for n in range(12)]


def lines(rng: random.Random) -> Iterator[str]:
    """Yield the lines of the file; every second of the 80 customers likes tea, the others mugs."""
    yield "Orders of 2025\n\nKunde;Artikel;Menge;Datum;Status"
    for customer in range(80):
        shelf = TEA if customer % 2 else MUGS
        for product in rng.sample(shelf, 7) + rng.sample(TEA + MUGS, 1):
            day = f"{rng.randint(1, 28):02}.{rng.randint(1, 12):02}.2025"
            status = "cancelled" if rng.random() < 0.05 else "paid"
            yield f"C{customer:03};{product};{rng.randint(1, 3)};{day};{status}"
    yield "C001;;1;03.05.2025;paid"
    yield "C002;Mug 3;-1;04.05.2025;paid"


if __name__ == "__main__":
    print("\n".join(lines(random.Random(0))))  # noqa: T201
