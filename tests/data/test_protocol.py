"""The protocol card and its hash."""

import json
from dataclasses import replace

import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import Preparation, SplitPlan
from recfusion.data.protocol import Protocol, Signals, check_same_protocol, split_counts
from recfusion.data.split import split

METRICS = ("ndcg@100",)
PINNED = ["a0115382ca0a", "4c88fad391d0", "e6891c59c995"]  # of committed results: a change here makes them unreadable


def test_a_card_survives_json(groups: Interactions) -> None:
    card = Protocol.of(groups, SplitPlan(), METRICS)
    assert Protocol.parse(json.loads(json.dumps(card.document())), "here") == card


def test_the_hash_changes_with_data_preparation_split_and_metrics() -> None:
    data = load()
    cards = [
        Protocol.of(data, SplitPlan(), METRICS),
        Protocol.of(data, SplitPlan(fold_in=0.7), METRICS),
        Protocol.of(data, SplitPlan(), ("recall@20",)),
        Protocol.of(load(preparation=Preparation(min_items_per_user=6)), SplitPlan(), METRICS),
    ]
    assert len({card.hash for card in cards}) == 4


def test_the_hashes_of_published_results_never_change() -> None:
    data = load()
    assert data.fingerprint == "6143c59cc785dc91db5dc0063a16ef6e"
    plans = SplitPlan(kind="strong"), SplitPlan(kind="weak"), SplitPlan(kind="temporal")
    hashes = [Protocol.of(data, plan, METRICS).hash for plan in plans]
    assert hashes == PINNED


def test_the_hash_does_not_depend_on_how_the_threshold_was_said() -> None:
    said = Protocol.of(load(preparation=Preparation(min_rating=4)), SplitPlan(), METRICS)
    assert said.hash == Protocol.of(load(), SplitPlan(), METRICS).hash


def test_a_card_says_which_signals_exist_and_which_were_used() -> None:
    data = load()
    plain, graded = Protocol.of(data, SplitPlan(), METRICS), Protocol.of(data, SplitPlan(), METRICS, used=("grades",))
    assert plain.document()["signals"] == {"exist": ["grades", "times"], "used": [], "digest": ""}
    assert plain.hash == PINNED[0] != graded.hash
    assert graded.signals.used == ("grades",)
    assert Protocol.parse(graded.document(), "here") == graded
    assert data.grades is not None
    other = replace(data, grades=data.grades + 1)
    assert Protocol.of(other, SplitPlan(), METRICS).hash == plain.hash
    assert Protocol.of(other, SplitPlan(), METRICS, used=("grades",)).hash != graded.hash
    with pytest.raises(InputError, match="edited by hand"):
        Protocol.parse(graded.document() | {"signals": {}}, "here")


def test_a_card_from_before_there_were_signals_is_read(groups: Interactions) -> None:
    document = Protocol.of(groups, SplitPlan(), METRICS).document()
    del document["signals"]
    assert Protocol.parse(document, "here").signals == Signals()


def test_a_split_has_an_id_of_its_own(groups: Interactions) -> None:
    card = Protocol.of(groups, SplitPlan(), METRICS)
    assert card.split_id(3) == f"{card.hash}-3"


def test_the_six_assumptions_are_stated_with_their_numbers() -> None:
    text = " ".join(Protocol.of(load(), SplitPlan(), METRICS).assumptions())
    for part in ("ndcg@100", "at least 4 counts", "at least 5 items", "80% / 10% / 10%", "Strong"):
        assert part in text
    assert len(Protocol.of(load(), SplitPlan(kind="temporal"), METRICS).assumptions()) == 6


def test_results_of_different_protocols_are_refused() -> None:
    check_same_protocol({"a": "1", "b": "1"})
    with pytest.raises(InputError, match="cannot stand in one table"):
        check_same_protocol({"a": "1", "b": "2"})


def test_a_document_that_is_no_card_is_named() -> None:
    with pytest.raises(InputError, match=r"Expected a protocol card in 'x\.json'"):
        Protocol.parse({"users": "many"}, "x.json")


def test_counts_are_those_of_the_paper_s_table(data_folder: object) -> None:
    counts = split_counts(split(load("ml-1m", Preparation(min_rating=None)), seed=0))
    assert [counts[part]["users"] for part in ("train", "valid", "test")] == [4832, 604, 604]
    assert counts["train"]["items"] == 3416
