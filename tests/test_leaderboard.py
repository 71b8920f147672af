"""scripts/leaderboard.py: ranks, the critical difference and the diagram."""

import runpy
import xml.etree.ElementTree as ET
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from named_tests import ROOT
from recfusion.evaluation.evaluate import PopularitySlices

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "leaderboard.py"))


def test_ranks_are_means_over_data_sets_and_ties_share_theirs() -> None:
    means = np.array([[0.3, 0.2, 0.1], [0.3, 0.3, 0.1]])
    assert SCRIPT["mean_ranks"](means).tolist() == [1.25, 1.75, 3.0]


def test_the_critical_difference_is_that_of_the_published_example() -> None:
    assert SCRIPT["critical_difference"](4, 14) == pytest.approx(1.25, abs=0.01)  # Demsar, 2006: q = 2.569


def test_bars_join_runs_within_the_distance_and_none_inside_another() -> None:
    assert SCRIPT["groups"]([1.0, 1.5, 2.2, 4.0], 1.0) == [(1.0, 1.5), (1.5, 2.2)]
    assert SCRIPT["groups"]([1.0, 3.0], 1.0) == []


def test_popularity_bias_is_the_recall_of_rare_items_over_that_of_popular_ones() -> None:
    one = SimpleNamespace(slices=PopularitySlices((5, 9, 90), (10, 10, 10), {20: (1, 1, 1), 100: (8, 3, 2)}))
    other = SimpleNamespace(slices=PopularitySlices((5, 9, 90), (10, 10, 30), {20: (1, 1, 1), 100: (8, 3, 4)}))
    assert SCRIPT["rare_share"]([one, other]) == pytest.approx((6 / 40) / (16 / 20))


def fitted(label: str, **others: Any) -> Any:
    """Return what the leaderboard reads of a result."""
    made: dict[str, Any] = {
        "label": label,
        "model": label,
        "place": "",
        "seed": 0,
        "code_state": "current",
        "test": {"ndcg@100": np.array([0.25, 0.5])},
        "cpu_seconds": None,
        "energy_joules": None,
        "protocol": SimpleNamespace(hash="a", metrics=("recall@20", "ndcg@100")),
    }
    return SimpleNamespace(**(made | others))


def test_rows_are_models_with_their_defaults_and_other_libraries() -> None:
    library = {"model": "lists", "place": "lists of another program"}
    known = fitted("mixture of known models", model="mixture")
    results = [fitted("ease"), fitted("ease, tuned", model="ease"), known, fitted("implicit-als", **library)]
    assert list(SCRIPT["of_registry"](results)) == ["ease", "mixture of known models", "implicit-als"]


def test_a_store_gets_other_models_of_the_same_protocol_from_other_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    strange = SimpleNamespace(hash="b", metrics=("ndcg@100",))
    stores = {
        "ml-100k.jsonl": [fitted("ease")],
        "unets.jsonl": [fitted("ease", seed=1), fitted("recfusion-unet1d"), fitted("slim", protocol=strange)],
    }
    function = SCRIPT["stored"]
    monkeypatch.setitem(function.__globals__, "read_results", lambda path: list(stores.get(path.name, ())))
    assert [(one.label, one.seed) for one in function("ml-100k")] == [("ease", 0), ("recfusion-unet1d", 0)]
    assert [one.label for one in function("unets")] == ["ease", "recfusion-unet1d", "slim"]


def test_energy_is_measured_where_all_fits_are_and_estimated_where_their_processor_time_is_known() -> None:
    assert SCRIPT["energy"]([fitted("a")]) == ""
    assert SCRIPT["energy"]([fitted("a", cpu_seconds=240.0), fitted("a", cpu_seconds=720.0)]) == "2.000"  # at 15 W
    half = fitted("a", cpu_seconds=240.0, energy_joules=7200.0)
    assert SCRIPT["energy"]([half, half]) == "2.000 m"
    assert SCRIPT["energy"]([half, fitted("a", cpu_seconds=240.0)]) == "1.000"


def test_a_cell_has_fewer_splits_in_brackets_and_the_mark_of_its_code() -> None:
    assert SCRIPT["cell"]([fitted("a")], 1) == "37.50"
    assert SCRIPT["cell"]([fitted("a", code_state="unknown")], 3) == "37.50 (1) ‡"
    assert SCRIPT["cell"]([fitted("a"), fitted("a", code_state="stale")], 3) == "37.50 (2) †"
    assert SCRIPT["cell"]([fitted("a", code_state="unknown", place="own.py:Model")], 1) == "37.50"


def test_a_data_set_with_another_metric_names_it() -> None:
    other = fitted("a", protocol=SimpleNamespace(hash="c", metrics=("recall@20", "ndcg@20")))
    assert [SCRIPT["other_metric"]({"a": [one]}) for one in (fitted("a"), other)] == ["", " ndcg@20"]


def test_a_model_without_random_numbers_has_no_variation_between_seeds() -> None:
    values = {"ndcg@100": 0.4, "coverage@100": 0.5, "gini@100": 0.9, "popularity@100": 0.1}
    users = {"pruned": {"tested": 50, "with fewer than five items": 0}}
    its = {"users": users, "pruned": {"ease": values}, "unpruned": {}, "seeds": {"multdae": {"0": 0.4, "1": 0.42}}}
    text = "\n".join(SCRIPT["beyond"]({"tiny": its}))
    assert "| `ease` | 40.00 |  | 50.0 | 90.0 | 10.0 |  |" in text
    assert "| `multdae` | 40.00 |  |  |  |  | 1.41 (2) |" in text
    assert "50 users, 0 of them with fewer than five items" in text


def test_the_error_of_users_with_several_values_counts_users() -> None:
    users, values = np.array([0, 0, 1, 1]), np.array([1.0, 1.0, 3.0, 3.0])
    assert SCRIPT["clustered_error"](users, values) == pytest.approx(np.sqrt(8) / 4)


def test_the_diagram_is_a_picture_with_every_model() -> None:
    text = SCRIPT["diagram"]({"ease": 1.0, "slim": 2.5, "random": 2.6}, 1.2)
    assert ET.fromstring(text).tag.endswith("svg")
    assert all(label in text for label in ("ease 1.0", "slim 2.5", "random 2.6"))
