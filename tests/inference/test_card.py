"""The model card: what it says of a model, and that catalogs can read its head."""

import json
from pathlib import Path

import pytest

from recfusion.data.interactions import Interactions
from recfusion.experiments.train import train
from recfusion.inference.bundle import Bundle
from recfusion.inference.model_card import WATTS, model_card

SECTIONS = (
    *("Intended use", "How to load and use it", "Data and protocol", "Results", "Parameters and settings"),
    *("Training time and energy", "Limitations", "Licence of the data"),
)


def head(card: str) -> dict[str, str | list[str]]:
    """Return the YAML in front of a card: keys with a text each, or with a list below."""
    lines = card.split("---\n")[1].splitlines()
    found: dict[str, str | list[str]] = {}
    key = ""
    for line in lines:
        if line.startswith("- "):
            values = found[key]
            assert isinstance(values, list)
            values.append(json.loads(line[2:]) if line[2] == '"' else line[2:])
        else:
            key, _, text = line.partition(":")
            found[key] = text.strip() or []
    return found


def test_the_head_names_library_licence_tags_data_and_metrics(groups: Interactions) -> None:
    found = head(model_card(train("ease", groups, {"l2": 5})))
    assert found["library_name"] == "recfusion"
    assert found["license"] == "unknown"
    assert {"recommendation", "ease"} <= set(found["tags"])
    assert found["datasets"] == ["made up"]
    assert found["metrics"] == ["calibrated_recall", "ndcg"]


def test_every_section_is_there_once_and_says_something(groups: Interactions) -> None:
    card = model_card(train("ease", groups, {"l2": 5}))
    places = [card.index(f"\n## {section}\n") for section in SECTIONS]
    assert places == sorted(places)
    assert card.count("\n## ") == len(SECTIONS)
    for body in card.split("\n## ")[1:]:
        assert len(body.split("\n", 1)[1].strip()) > 20
    for words in ("80 users, 40 items", "Strong generalization", "| l2 | 5 | given or default |", "rf.Bundle.load"):
        assert words in card
    assert "1,600 numbers were learned" in card
    assert "| validation | ndcg@100 |" in card


def test_a_data_set_of_the_catalog_has_its_terms_and_citation() -> None:
    from recfusion.data.load import load

    card = model_card(train("popularity", load()))
    assert head(card)["license"] == "other"
    assert head(card)["license_name"] == "terms-of-the-data"
    assert "no commercial use" in card
    assert "Citation: F. Maxwell Harper" in card
    assert "It has no settings." in card


def test_a_setting_that_the_fit_chose_is_told_from_one_that_was_given(groups: Interactions, tmp_path: Path) -> None:
    bundle = train("ease", groups)
    again = Bundle.load(bundle.save(tmp_path / "model"))
    chosen = bundle.model.chosen()
    assert chosen == again.model.chosen()
    assert chosen.keys() == {"l2"}
    for card in (model_card(bundle), model_card(again)):
        assert "| fit | weight of the squared penalty" in card
        assert "chose on validation users" in card
    given = model_card(train("ease", groups, {"l2": 5}))
    assert "| fit |" not in given
    assert "chose none of the settings" in given


def test_energy_is_an_estimate_with_its_assumption(groups: Interactions) -> None:
    from dataclasses import replace

    bundle = replace(train("popularity", groups), fit_seconds=7200.0)
    card = model_card(bundle)
    assert "The fit took 7,200.0 seconds" in card
    assert f"about {2 * WATTS:g} Wh, **assuming** {WATTS:g} W" in card
    assert "nothing was measured" in card
    assert "kWh" in model_card(replace(bundle, fit_seconds=1e6))


def test_a_card_without_results_says_why(groups: Interactions) -> None:
    from dataclasses import replace

    assert "trained on all users" in model_card(train("ease", groups, {"l2": 5}, all_users=True))
    bundle = train("ease", groups, {"l2": 5})
    assert "Not evaluated yet." in model_card(replace(bundle, metrics={}))


@pytest.mark.parametrize("name", ["a: b", 'with "quotes"', "#comment", "- dash"])
def test_the_head_stands_any_name_of_data(groups: Interactions, name: str) -> None:
    from dataclasses import replace

    bundle = train("popularity", groups)
    named = replace(bundle, protocol=bundle.protocol.model_copy(update={"name": name}))
    assert head(model_card(named))["datasets"] == [name]
