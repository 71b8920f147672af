"""The memory guard."""

import pytest

from recfusion.core import memory
from recfusion.core.errors import InputError
from recfusion.core.memory import available_bytes, gigabytes, require_memory


def test_work_that_fits_is_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 10)
    require_memory(10, "It", "advice.")


def test_work_that_does_not_fit_is_refused_with_both_numbers_and_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 2_000_000_000)
    with pytest.raises(InputError, match=r"EASE needs about 6\.4 GB of memory and 2\.0 GB are free: buy more\."):
        require_memory(6_400_000_000, "EASE", "buy more.")


def test_there_is_some_memory_on_this_machine() -> None:
    assert available_bytes() > 10_000_000


def test_small_amounts_are_told_in_megabytes() -> None:
    assert gigabytes(5_000_000) == "5 MB"
