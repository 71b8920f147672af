"""Latency of the service.

Milliseconds of a request, median and 99th percentile, with a model of 3,125 items (benchmarks/serve.json): one client
alone, an empty route and a call of the library for comparison, and 200 requests per second for a minute.
"""

from drawing import BLUE, ORANGE, Figure, document, figure

NAMES = {"empty": "empty route", "library": "library call", "lists": "a list", "steady": "a list, 200 per second"}


def draw() -> Figure:
    found = document("benchmarks/serve.json")
    rows = {**found["alone"], "steady": found["steady"]}
    shown, axes = figure(6.4, 2.6)
    for place, name in enumerate(reversed(NAMES)):
        axes.barh(
            place + 0.18, rows[name]["p99, ms"], 0.34, color=ORANGE, label="99th percentile" if not place else None
        )
        axes.barh(place - 0.18, rows[name]["p50, ms"], 0.34, color=BLUE, label="median" if not place else None)
    axes.set(yticks=range(len(NAMES)), yticklabels=list(reversed(NAMES.values())), xlabel="milliseconds")
    axes.legend(frameon=False)
    return shown
