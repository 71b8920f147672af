"""Arrays of a safetensors file as the system maps them: processes that load one file share its memory."""

import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_KINDS = {
    **{f"F{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
    **{f"I{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"U{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    "BOOL": np.dtype(np.bool_),
}
_LONGEST = 100_000_000  # bytes of a header, as safetensors itself has it


def mapped_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file by name; what is written to them stays in this process.

    The file must keep its content while it is mapped: a new one takes its name, and never its place.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _LONGEST:
            raise ValueError("its header is too long")
        header = json.loads(file.read(length))
        whole = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)[8 + length :]
    arrays: dict[str, NDArray[Any]] = {}
    for name, told in header.items():
        if name == "__metadata__":
            continue
        start, end = told["data_offsets"]
        kind, shape = _KINDS[told["dtype"]], tuple(told["shape"])
        if not 0 <= start <= end <= len(whole) or end - start != kind.itemsize * int(np.prod(shape, dtype=np.int64)):
            raise ValueError(f"{name} lies outside of the file")
        arrays[name] = whole[start:end].view(kind).reshape(shape)
    return arrays
