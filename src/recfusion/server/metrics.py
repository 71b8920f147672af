"""Counters and latencies in the Prometheus text format, for one or several worker processes."""

import math
import os
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

_QUANTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99}
_BUCKETS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """The counters of one process; several processes share files in the folder PROMETHEUS_MULTIPROC_DIR.

    Those of one of several shops have a label with its name, and only these are shown.
    """

    def __init__(self, shop: str = "") -> None:
        self._shop, self._registry = shop, CollectorRegistry()
        self.seconds = self._add(Histogram, "request_seconds", "Time to answer.", "route", buckets=_BUCKETS)
        self.requests = self._add(Counter, "requests", "Requests by outcome.", "route", "status")
        self.lists = self._add(Counter, "lists", "Lists by model and basis.", "model", "basis")
        self.unknown = self._add(Counter, "unknown_ids", "Ids in histories that no model knows.")
        self.events = self._add(Counter, "events", "Events recorded.", "kind")
        self.reloads = self._add(Counter, "reloads", "Reloads of the models.", "outcome")

    def _add(self, kind: Any, name: str, text: str, *labels: str, **more: Any) -> Any:
        """Return a new metric, which has the labels but that of the shop, if there is one."""
        own = ("shop", *labels) if self._shop else labels
        metric = kind(f"recfusion_{name}", text, own, registry=self._registry, **more)
        if not self._shop:
            return metric
        labelled = partial(metric.labels, self._shop)
        return SimpleNamespace(labels=labelled) if labels else labelled()

    def latency(self) -> list[dict[str, Any]]:
        """Return the requests of each route and upper bounds of quantiles of their seconds, over all processes."""
        counts: dict[str, dict[float, float]] = {}
        for family in self._families():
            for sample in family.samples if family.name == "recfusion_request_seconds" else ():
                if sample.name.endswith("_bucket"):
                    own = counts.setdefault(sample.labels["route"], {})
                    own[float(sample.labels["le"])] = sample.value
        return [
            {"route": route, "requests": int(own[math.inf])}
            | {name: _finite(min(le for le in own if own[le] >= s * own[math.inf])) for name, s in _QUANTILES.items()}
            for route, own in sorted(counts.items())
            if route.startswith("/")
        ]

    def text(self, ages: Mapping[str, float]) -> bytes:
        """Return all metrics as text, with the models' ages in seconds."""
        families = self._families()
        age = GaugeMetricFamily("recfusion_model_age_seconds", "Seconds since the model was trained.", labels=["model"])
        for label, seconds in ages.items():
            age.add_metric([label], seconds)
        shown: Any = SimpleNamespace(collect=lambda: [*families, age])  # no file of a multiprocess gauge
        return generate_latest(shown)

    def _families(self) -> list[Any]:
        """Return the metrics of this shop, of all processes."""
        registry = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        families = list(registry.collect())
        for family in families:
            family.samples = [one for one in family.samples if one.labels.get("shop", "") == self._shop]
        return families


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None
