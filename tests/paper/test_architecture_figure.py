"""The figure of the RecFusion family."""

from dataclasses import replace

import pytest
from drawn import texts

from recfusion.models import registry
from recfusion.paper.architecture_figure import NOT_USED, Family, Row, architecture_figure, recfusion_family


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


def test_the_architecture_figure_names_every_variant_and_what_is_in_its_row() -> None:
    family = recfusion_family()
    written = texts(architecture_figure(family))
    assert set(family.names) <= set(written)
    for found in family.rows:
        assert found.setting in written
        assert set(found.values) <= set(written)


def test_a_new_row_of_the_registry_appears_in_the_architecture_figure(one_more: str) -> None:
    family = recfusion_family()
    assert family.names[-1] == one_more
    assert row(family, "T").values[-1] == "17"
    assert row(family, "T").differs[-1]
    assert row(family, "lr").stage.name == "training"
    written = texts(architecture_figure(family))
    assert {one_more, "17", "0.25"} <= set(written)
