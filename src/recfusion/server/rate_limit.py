"""A limit on the requests per second of each key."""

import time
from collections.abc import Callable


class RateLimit:
    """Token buckets: each name may send `rate` requests per second on average, and a second's worth at once."""

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._buckets: dict[str, tuple[float, float]] = {}  # name -> requests left, time of that count

    def wait(self, name: str) -> float:
        """Count a request and return 0; or return after how many seconds the next one is allowed."""
        if self._rate is None:
            return 0.0
        now, most = self._clock(), max(1.0, self._rate)
        left, then = self._buckets.get(name, (most, now))
        left = min(most, left + (now - then) * self._rate)
        if left < 1:
            return (1 - left) / self._rate
        self._buckets[name] = (left - 1, now)
        return 0.0
