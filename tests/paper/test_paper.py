"""The paper's numbers, and the experiments that make them again."""

from pathlib import Path
from typing import Any

import pytest

from recfusion.core.errors import InputError
from recfusion.data.catalog import CATALOG
from recfusion.data.interactions import ReadReport
from recfusion.data.load import load
from recfusion.data.options import Preparation, Source, SplitPlan
from recfusion.data.protocol import Protocol, Signals
from recfusion.data.synthetic import Size
from recfusion.data.synthetic_files import Form, generate
from recfusion.experiments.experiment_file import read_experiment
from recfusion.models.abilities import signals_read
from recfusion.models.registry import MODELS, entry, make_model
from recfusion.models.settings import setting_values
from recfusion.models.thinning.mixture import Thinning
from recfusion.paper import tables as paper
from recfusion.paper.experiments import (
    QUICK_SETTINGS,
    copy_results,
    count_rows,
    missing_data,
    packaged_experiment,
    parameter_counts,
)
from recfusion.paper.tables import COUNTS, METRICS, PARAMETERS, TABLES, other_data_note, paper_values

NAMES = {"ease": "ease", "mine": "recfusion", "bspm": "bspm"}


def card(name: str = "ml-1m", **changes: Any) -> Protocol:
    """Return a protocol card as ML-1M has it in the paper, but for some changes."""
    return Protocol(
        **{
            "source": Source(data=name),
            "preparation": Preparation(min_rating=4.0),
            "plan": SplitPlan(),
            "metrics": METRICS,
            "name": name,
            "fingerprint": "",
            "users": 0,
            "items": 0,
            "interactions": 0,
            "read": ReadReport(CATALOG[name].ratings),
            "steps": (),
        }
        | changes
    )


@pytest.mark.parametrize(("form", "table"), [("ml-25m", "ml25m"), ("netflix", "netflix")])
def test_generated_data_of_a_published_name_can_be_judged_and_never_stands_beside_the_paper(
    form: Form, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(Size(300, 60, 4500), 0, form, tmp_path / form)
    monkeypatch.setenv("RECFUSION_DATA", str(tmp_path))
    experiment = packaged_experiment(table, quick=True)
    protocol = Protocol.of(load(experiment.data.data), SplitPlan(), METRICS)
    assert protocol.name == form
    assert (protocol.read.rows, paper_values(protocol, NAMES, table)) == (4500, None)
    assert "has 4,500 rows here" in str(other_data_note(protocol))
    assert other_data_note(card(form)) is None


def test_the_paper_s_models_and_data_have_our_names() -> None:
    for table in TABLES.values():
        assert set(table.values) <= set(MODELS)
        assert table.data in CATALOG
    assert set(PARAMETERS) <= set(MODELS)
    assert set(COUNTS) <= set(CATALOG)


def test_results_of_the_paper_s_protocol_get_its_values_by_model() -> None:
    paper = paper_values(card(), NAMES)
    assert paper is not None
    assert paper.title == "ML-1M, medians of ten splits"
    assert paper.models["ease"] == pytest.approx({METRICS[0]: 0.3576, METRICS[1]: 0.4692, METRICS[2]: 0.4224})
    assert paper.models["mine"]["ndcg@100"] == pytest.approx(0.3614)
    assert "bspm" not in paper.models
    other = paper_values(card(), NAMES, "ablation")
    assert other is not None
    assert other.models["mine"]["ndcg@100"] == pytest.approx(0.3744)
    assert other.models["ease"] == paper.models["ease"]  # which the ablation lacks
    assert other.title == "ML-1M, medians of ten splits; ML-1M, the variants of RecFusion"
    assert paper_values(card(), {"bspm": "bspm"}) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "ml-100k"},
        {"metrics": ("ndcg@100",)},
        {"plan": SplitPlan(kind="weak")},
        {"preparation": Preparation(min_rating=None)},
        {"signals": Signals(used=("grades",))},
    ],
)
def test_numbers_of_another_protocol_are_not_set_beside_the_paper_s(changes: dict[str, Any]) -> None:
    assert paper_values(card(**changes), NAMES) is None


def test_an_unknown_table_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="'ml9m': choose one of ml1m, ablation, ml25m, netflix"):
        paper_values(card(), NAMES, "ml9m")
    with pytest.raises(InputError, match="Unknown experiment 'ml9m'"):
        packaged_experiment("ml9m")


def test_the_stored_experiment_has_every_model_of_the_registry_on_ten_splits() -> None:
    experiment = read_experiment(Path(__file__).parents[2] / "results" / "ml1m.toml")
    assert {candidate.label for candidate, _ in experiment.models} == {
        name
        for name in MODELS
        # Models that read more than ones have tables of their own; mixtures also do without.
        if not signals_read(entry(name).load()) or issubclass(entry(name).load(), Thinning)
    }
    for candidate, _ in experiment.models:
        assert candidate.entry.name == candidate.label
        assert candidate.model == make_model(candidate.label)
    fewer = {candidate.label for candidate, seeds in experiment.models if seeds != tuple(range(10))}
    assert fewer == {"recfusion-map", "recfusion-unet1d", "recfusion-unet2d"}  # for their cost


def test_the_ablation_has_each_variant_with_the_paper_s_settings_and_cheap_ones_with_ours() -> None:
    experiment = packaged_experiment("ablation")
    family = {name for name in MODELS if issubclass(entry(name).load(), entry("recfusion").load())}
    family -= {"recfusion-map"}  # which the paper does not have
    assert family == set(TABLES["ablation"].values)
    for name in family:
        models = [candidate.model for candidate, _ in experiment.models if candidate.entry.name == name]
        assert (make_model(name) in models) == ("unet" not in name)
        assert any(setting_values(model)["objective"] == "published" for model in models)


def test_the_main_experiment_has_the_paper_s_models_and_ours_on_three_splits() -> None:
    models = {candidate.label: seeds for candidate, seeds in packaged_experiment("ml1m").models}
    assert models == dict.fromkeys([*TABLES["ml1m"].values, "thinning-linear", "thinning"], (0, 1, 2))


@pytest.mark.parametrize("name", TABLES)
def test_every_experiment_covers_its_table_under_the_paper_s_protocol(name: str) -> None:
    experiment = packaged_experiment(name)
    assert experiment.name == name
    assert experiment.data.data == TABLES[name].data
    assert {candidate.entry.name for candidate, _ in experiment.models} >= set(TABLES[name].values) | {"ease"}
    assert (experiment.preparation, experiment.split) == (Preparation(), SplitPlan())
    assert experiment.metrics == METRICS


def test_more_splits_are_for_all_models_that_are_not_limited_to_fewer() -> None:
    assert {seeds for _, seeds in packaged_experiment("ml1m", splits=10).models} == {tuple(range(10))}
    seeds = {candidate.label: its for candidate, its in packaged_experiment("ablation", splits=10).models}
    assert {label for label, its in seeds.items() if its != tuple(range(10))} == {"unet1d (paper)", "unet2d (paper)"}
    assert {its for _, its in packaged_experiment("ablation", splits=1).models} == {(0,)}


@pytest.mark.parametrize("name", TABLES)
def test_a_quick_version_has_two_splits_few_epochs_and_no_costly_models(name: str) -> None:
    quick, whole = packaged_experiment(name, quick=True), packaged_experiment(name)
    assert quick.name == f"{name}-quick"
    assert "quick" in quick.title
    assert quick.seeds == (0, 1)
    values = {candidate.label: candidate.values for candidate, _ in whole.models}
    costly = {label for label, its in values.items() if "members" in its or its.get("net") in ("unet1d", "unet2d")}
    assert {candidate.label for candidate, _ in quick.models} == set(values) - costly
    limited = 0
    for candidate, seeds in quick.models:
        assert set(seeds) <= {0, 1}
        for setting, most in QUICK_SETTINGS.items():
            if setting in candidate.values:
                limited += 1
                assert candidate.values[setting] <= most
        same, before = (
            {key: value for key, value in its.items() if key not in QUICK_SETTINGS}
            for its in (candidate.values, values[candidate.label])
        )
        assert same == before
    assert limited > 0


def test_networks_have_the_paper_s_numbers_of_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recfusion.paper.experiments.locate", lambda name: None)  # falls back to the published counts
    n_items, found = parameter_counts()
    assert n_items == 3416
    assert {name: found[name] for name in PARAMETERS} == PARAMETERS
    assert "ease" not in found


def test_missing_data_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RECFUSION_DATA", str(tmp_path))
    monkeypatch.setenv("RECFUSION_CACHE", str(tmp_path))
    assert missing_data("ml-latest-small") is None
    sentence = missing_data("ml-25m")
    assert sentence is not None
    assert "recfusion data fetch ml-25m" in sentence


def numbers(rows: Any) -> list[tuple[Any, ...]]:
    """Return the rows of counts without their types, which allow any cell."""
    return list(rows)


def test_counts_are_taken_part_by_part_beside_the_paper_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "COUNTS", {"ml-latest-small": COUNTS["ml-1m"]})
    rows = count_rows("ml-latest-small", splits=3)
    assert len(rows) == 9
    assert (
        sum(ours for label, _, ours, *_ in numbers(rows) if label.endswith(": users")) == 671
    )  # all have five ratings
    for _, paper_count, ours, difference, lowest, highest in numbers(rows):
        assert lowest <= ours <= highest
        assert difference == ours - paper_count
    assert rows[0][:2] == ("ml-latest-small, train: users", 4832)


@pytest.mark.slow
def test_counts_of_ml_1m_are_the_paper_s_where_the_split_leaves_no_choice(data_folder: Path) -> None:
    for label, published, ours, _, lowest, highest in numbers(count_rows("ml-1m")):
        if label.endswith(": users"):
            assert ours == lowest == highest == published
        else:
            assert ours == pytest.approx(published, rel=0.04)


def test_a_fit_that_another_store_holds_is_taken_over_and_not_run_again(tmp_path: Path) -> None:
    from recfusion.experiments.experiment_file import parse_experiment
    from recfusion.experiments.result import read_results
    from recfusion.experiments.run import run_experiment

    lines = [f"u{user},{(user % 3) * 8 + (user + step) % 8}\n" for user in range(60) for step in range(6)]
    (tmp_path / "shop.csv").write_text("user,item\n" + "".join(lines))
    document = {
        "name": "one",
        "data": {"data": "shop.csv"},
        "run": {"seeds": 2, "metrics": ["ndcg@5"]},
        "models": {"popularity": {}, "ease": {"l2": 5, "seeds": 1}},
    }
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    run_experiment(parse_experiment(document, "one", tmp_path), first, workers=0)
    other = parse_experiment({**document, "models": {"popularity": {}, "ease": {"l2": 6}}}, "two", tmp_path)
    assert copy_results(other, second, [first]) == 2
    assert [(one.label, one.seed) for one in read_results(second)] == [("popularity", 0), ("popularity", 1)]
    assert copy_results(other, second, [first]) == 0
    assert copy_results(other, second, [tmp_path / "nowhere.jsonl"]) == 0
