"""Mapped arrays are those of the file, and a damaged file is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from recfusion.core.memory_map import map_arrays


def test_map_arrays_are_the_saved_ones_and_writing_stays_in_the_process(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    arrays: dict[str, NDArray[Any]] = {
        "a": np.arange(12, dtype=np.float32).reshape(3, 4),
        "b": np.array([[1, -2]], np.int64),
        "empty": np.zeros((0, 5), np.float32),
        "flags": np.array([True, False]),
    }
    save_file(arrays, path)
    found = map_arrays(path)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    found["a"][0, 0] = 99
    assert load_file(path)["a"][0, 0] == 0


@pytest.mark.parametrize("length", [4, 60, -20])
def test_a_file_cut_short_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": np.ones(100, np.float32)}, path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError):  # noqa: PT011
        map_arrays(path)
