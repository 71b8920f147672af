"""Counters and latencies in Prometheus' form; right with several workers."""

import os
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

_BUCKETS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """What one process counts; with several, they share files in the folder that PROMETHEUS_MULTIPROC_DIR names."""

    def __init__(self) -> None:
        own = CollectorRegistry()
        self._registry = own
        self.seconds = Histogram(
            "recfusion_request_seconds", "Time to answer.", ["route"], buckets=_BUCKETS, registry=own
        )
        self.requests = Counter("recfusion_requests", "Requests by outcome.", ["route", "status"], registry=own)
        self.lists = Counter("recfusion_lists", "Lists by model and basis.", ["model", "basis"], registry=own)
        self.unknown = Counter("recfusion_unknown_ids", "Ids in histories that no model knows.", registry=own)
        self.events = Counter("recfusion_events", "Events recorded.", ["kind"], registry=own)
        self.reloads = Counter("recfusion_reloads", "Models loaded anew.", ["outcome"], registry=own)

    def text(self, ages: Mapping[str, float]) -> bytes:
        """Return all of it as a scraper reads it, with the models' ages in seconds."""
        registry = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        own = CollectorRegistry()
        own.register(_Ages(ages))
        return generate_latest(registry) + generate_latest(own)


class _Ages(Collector):
    """The models' ages as a metric that is computed when it is asked for."""

    def __init__(self, ages: Mapping[str, float]) -> None:
        self._ages = ages

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily("recfusion_model_age_seconds", "Since the model was made.", labels=["model"])
        for label, seconds in self._ages.items():
            family.add_metric([label], seconds)
        yield family
