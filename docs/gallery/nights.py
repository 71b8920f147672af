"""Ten nights in a shop.

NDCG@100 of the served model after each night, from the log of examples/shop/ten_nights.py, in which eight nights were
killed and run again and one got a truncated file. The marks say which recipe won.
"""

import re

from drawing import BLUE, ORANGE, ROOT, Figure, figure

LINE = re.compile(r"night +(\d+).*?outcome=(\w+) model=(\S+) ndcg@100=([\d.]+).*?customers=(\d+)")


def draw() -> Figure:
    text = (ROOT / "examples" / "shop" / "ten_nights.log").read_text(encoding="utf-8")
    nights = [(int(n), outcome, model, 100 * float(value)) for n, outcome, model, value, _ in LINE.findall(text)]
    shown, axes = figure()
    axes.plot([night[0] for night in nights], [night[3] for night in nights], color=BLUE, zorder=1)
    for number, outcome, model, value in nights:
        new = outcome != "old"
        axes.scatter(number, value, s=40, color=ORANGE if new else BLUE, zorder=2)
        if new:
            axes.annotate(model, (number, value), (6, -10), textcoords="offset points", fontsize=8, color=ORANGE)
    axes.set(xlabel="night", ylabel="NDCG@100, percent", xticks=range(1, 11))
    return shown
