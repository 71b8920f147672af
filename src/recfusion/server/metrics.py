"""Counters and latencies in the Prometheus text format, for one or several worker processes."""

import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

_BUCKETS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """The counters of one process; several processes share files in the folder PROMETHEUS_MULTIPROC_DIR."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.seconds = Histogram(
            "recfusion_request_seconds", "Time to answer.", ["route"], buckets=_BUCKETS, registry=registry
        )
        self.requests = Counter("recfusion_requests", "Requests by outcome.", ["route", "status"], registry=registry)
        self.lists = Counter("recfusion_lists", "Lists by model and basis.", ["model", "basis"], registry=registry)
        self.unknown = Counter("recfusion_unknown_ids", "Ids in histories that no model knows.", registry=registry)
        self.events = Counter("recfusion_events", "Events recorded.", ["kind"], registry=registry)
        self.reloads = Counter("recfusion_reloads", "Reloads of the models.", ["outcome"], registry=registry)

    def text(self, ages: Mapping[str, float]) -> bytes:
        """Return all metrics as text, with the models' ages in seconds."""
        registry = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        family = GaugeMetricFamily(
            "recfusion_model_age_seconds", "Seconds since the model was trained.", labels=["model"]
        )
        for label, seconds in ages.items():
            family.add_metric([label], seconds)
        computed: Any = SimpleNamespace(collect=lambda: [family])  # no file of a multiprocess gauge
        return generate_latest(registry) + generate_latest(computed)
