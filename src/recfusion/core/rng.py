"""Random generators: functions take an `rng`, and each purpose has an independent stream."""

import zlib

import numpy as np

RngLike = int | np.random.Generator | None


def make_rng(rng: RngLike) -> np.random.Generator:
    """Return `rng` as a generator; an integer is a seed, None draws fresh entropy."""
    return rng if isinstance(rng, np.random.Generator) else np.random.default_rng(rng)


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Return the generator of one purpose ("split", "fit ease", ...); draws for one purpose never shift another's."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode())])
