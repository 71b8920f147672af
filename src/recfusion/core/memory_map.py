"""Memory-mapped safetensors files: processes that load the same file share its memory."""

import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DTYPES = {
    **{f"F{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
    **{f"I{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"U{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    "BOOL": np.dtype(np.bool_),
}
_MOST_HEADER_BYTES = 100_000_000  # the limit of safetensors itself


def map_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file by name, copy on write.

    The file must not change while it is mapped: replace it by renaming a new file over it, never write into it.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _MOST_HEADER_BYTES:
            raise ValueError("its header is too long")
        header = json.loads(file.read(length))
        whole = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)[8 + length :]
    arrays: dict[str, NDArray[Any]] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
        if not 0 <= start <= end <= len(whole) or end - start != dtype.itemsize * int(np.prod(shape, dtype=np.int64)):
            raise ValueError(f"{name} lies outside of the file")
        arrays[name] = whole[start:end].view(dtype).reshape(shape)
    return arrays
