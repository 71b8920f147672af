"""Histories files are read as the model read its orders: condition on rows, columns, encoding, several files."""

import logging
from pathlib import Path

import pytest

from recfusion.data.load import load
from recfusion.data.options import Preparation, Source
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.server.config import Settings
from recfusion.server.known_users import KnownUsers

HEADER = "Besteller|Wer|Ware|Stand\n"


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """A model of the customers in the column Wer, though Besteller is the clearer name."""
    lines = [f"x|Käthe{n}|w{n % 7}|bezahlt\nx|Käthe{n}|w{(n + 1) % 7}|storniert\n" for n in range(40)]
    lines += [f"x|Käthe{n}|w{(n + 2) % 7}|bezahlt\n" for n in range(40)]
    (tmp_path / "orders-1.csv").write_bytes((HEADER + "".join(lines)).encode("cp1252"))
    source = Source(data=str(tmp_path / "orders-1.csv"), user="Wer", item="Ware", rows="Stand != 'storniert'")
    return train("ease", load(source, Preparation(min_items_per_user=1, min_users_per_item=1)), {"l2": 5})


def items(known: KnownUsers, user: str) -> list[str]:
    return [entry["item"] for entry in known.of(user)]


def test_the_model_s_options_apply_to_all_files_of_a_pattern(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "orders-2.csv").write_bytes(f"{HEADER}x|Käthe0|w5|bezahlt\nx|Zoë|w1|storniert\n".encode("cp1252"))
    for files in ((tmp_path / "orders-*.csv",), (tmp_path / "orders-1.csv", tmp_path / "orders-2.csv")):
        known = KnownUsers.read(files, bundle)
        assert items(known, "Käthe0") == ["w0", "w2", "w5"]
        assert items(known, "Zoë") == items(known, "x") == []


def test_a_file_of_another_form_is_read_by_its_own_names(
    bundle: Bundle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "clean.csv").write_text("user,item\nann,w1\n", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert items(KnownUsers.read((tmp_path / "clean.csv",), bundle), "ann") == ["w1"]
    assert "clean.csv has other columns than the orders of the model: all its rows count" in caplog.text


def test_one_file_may_be_given_as_a_text() -> None:
    assert Settings.model_validate({"folder": "a", "events": "b", "histories": "c.csv"}).histories == (Path("c.csv"),)
