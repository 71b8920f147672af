"""Random generators: every random choice takes an `rng`, and independent purposes take independent streams."""

import zlib

import numpy as np

RngLike = int | np.random.Generator | None


def make_rng(rng: RngLike) -> np.random.Generator:
    """Return `rng` as a generator; an integer is a seed, None draws fresh entropy."""
    return rng if isinstance(rng, np.random.Generator) else np.random.default_rng(rng)


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Return the generator of one purpose ("split", "fit ease", ...), so that no purpose shifts another's draws."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode())])
