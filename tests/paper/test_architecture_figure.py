"""The figure of the RecFusion family."""

import sys
from dataclasses import replace

import pytest

from drawn import texts
from named_tests import ROOT
from recfusion.models import registry
from recfusion.paper.architecture_figure import architecture_figure, choices, recfusion_variants

sys.path.insert(0, str(ROOT / "scripts"))
from family_table import NOT_USED, Family, Row, family_table, recfusion_family


def row(family: Family, setting: str) -> Row:
    return next(row for row in family.rows if row.setting == setting)


@pytest.fixture
def one_more(monkeypatch: pytest.MonkeyPatch) -> str:
    """A variant that nobody has heard of yet."""
    plain = registry.MODELS["recfusion"]
    entry = replace(plain, name="recfusion-quick", title="RecFusion in a hurry", settings={"T": 17, "lr": 0.25})
    monkeypatch.setattr(registry, "MODELS", {**registry.MODELS, "recfusion-quick": entry})
    return "recfusion-quick"


def test_the_family_is_read_from_the_registry() -> None:
    family = recfusion_family()
    implemented = registry.MODELS["recfusion"].load()
    assert list(family.names) == [
        name for name, entry in registry.MODELS.items() if issubclass(entry.load(), implemented)
    ]
    assert "ease" not in family.names
    process = row(family, "process")
    for name, value in zip(family.names, process.values, strict=True):
        assert value == getattr(registry.make_model(name), "process")  # noqa: B009  (it is no field of the base class)


def test_a_cell_differs_where_it_is_not_the_first_variant_s() -> None:
    family = recfusion_family()
    time = dict(zip(family.names, row(family, "time").differs, strict=True))
    assert not time["recfusion"]
    assert time["recfusion-t"]


def test_a_u_net_of_items_with_places_is_not_told_the_step_and_has_no_schedule() -> None:
    family = recfusion_family()
    place = family.names.index("recfusion-unet2d")
    assert row(family, "time").values[place] == "none"
    assert row(family, "beta_high").values[place] == NOT_USED
    assert row(family, "low").values[place] == "0.4"


def test_a_setting_without_a_meaning_is_not_shown_as_a_difference() -> None:
    family = recfusion_family()
    variance = row(family, "variance")
    binary = family.names.index("recfusion-bin")
    assert variance.values[binary] == NOT_USED
    assert not variance.differs[binary]


def test_every_setting_is_shown_once_or_named_as_common() -> None:
    from recfusion.models.settings import settings_of

    family = recfusion_family()
    named = [row.setting for row in family.rows + family.common]
    classes = (registry.MODELS[name].load() for name in family.names)
    assert sorted(named) == sorted({setting for kind in classes for setting in settings_of(kind)})
    assert not any(any(row.differs) for row in family.common)


def test_the_table_has_every_variant_and_setting_and_the_figure_the_choices() -> None:
    family = recfusion_family()
    head, _, *lines = family_table(family).splitlines()
    assert [cell.strip(" `") for cell in head.split("|")[4:-1]] == list(family.names)
    for line, found in zip(lines, family.rows, strict=True):
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        assert cells[1] == f"`{found.setting}`"
        assert tuple(cell.strip("*") for cell in cells[3:]) == found.values
        assert tuple(cell.startswith("**") for cell in cells[3:]) == found.differs
    written = " ".join(texts(architecture_figure()))
    for setting in ("process", "net", "variance", "objective"):
        values = choices(recfusion_variants().values(), setting)
        assert set(values) == {value for value in row(family, setting).values if value != NOT_USED}
        assert all(choice in written for choice in values)
    assert all(name in written for name in family.names)


def test_a_new_row_of_the_registry_appears_in_the_table_and_the_figure(one_more: str) -> None:
    family = recfusion_family()
    assert family.names[-1] == one_more
    assert row(family, "T").values[-1] == "17"
    assert row(family, "T").differs[-1]
    assert row(family, "lr").stage == "training"
    assert one_more in " ".join(texts(architecture_figure()))
    assert "**17** |" in family_table(family)
