"""Experiments as TOML files."""

import shutil
from pathlib import Path

import pytest

import foreign
from recfusion.core.errors import InputError
from recfusion.data.options import Preparation, SplitPlan
from recfusion.evaluation.metrics import DEFAULT_METRICS
from recfusion.experiments.candidate import Candidate
from recfusion.experiments.experiment_file import Experiment, read_experiment

SMALL = """
name = "small"
[data]
data = "ml-1m"
[run]
seeds = [3, 1]
[models.ease]
"""


def read(folder: Path, text: str) -> Experiment:
    (folder / "e.toml").write_text(text)
    return read_experiment(folder / "e.toml")


def planned(experiment: Experiment, label: str) -> tuple[Candidate, tuple[int, ...]]:
    return next((candidate, seeds) for candidate, seeds in experiment.models if candidate.label == label)


def test_a_small_file_takes_the_defaults(tmp_path: Path) -> None:
    found = read(tmp_path, SMALL)
    assert (found.name, found.title, found.data.data) == ("small", "", "ml-1m")
    assert (found.preparation, found.split, found.metrics) == (Preparation(), SplitPlan(), DEFAULT_METRICS)
    assert found.seeds == (3, 1)
    ((ease, seeds),) = found.models
    assert (ease.label, ease.entry.name, seeds) == ("ease", "ease", (3, 1))
    assert ease.values == {"l2": None, "tune_trials": 20}


def test_everything_can_be_said(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
        name = "all"
        title = "All there is"
        [data]
        data = "shop.csv"
        items = "products.csv"
        user = "customer"
        [preparation]
        min_rating = "none"
        min_items_per_user = 2
        [split]
        kind = "weak"
        [run]
        seeds = 3
        metrics = ["recall@5", "coverage@5"]
        [models.ease]
        [models."EASE, l2 = 7"]
        model = "ease"
        l2 = 7
        seeds = [2]
        [models.popularity]
        seeds = 2
        """,
    )
    assert (found.data.data, found.data.items) == (str(tmp_path / "shop.csv"), str(tmp_path / "products.csv"))
    assert found.data.user == "customer"
    assert (found.preparation.min_rating, found.preparation.min_items_per_user) == (None, 2)
    assert found.split.kind == "weak"
    assert found.metrics == ("recall@5", "coverage@5")
    assert found.seeds == (0, 1, 2)
    other, seeds = planned(found, "EASE, l2 = 7")
    assert (other.entry.name, other.values["l2"], seeds) == ("ease", 7.0, (2,))
    assert planned(found, "popularity")[1] == (0, 1)


def test_a_model_s_file_is_looked_for_beside_the_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    shutil.copy(foreign.__file__, tmp_path / "deep" / "mine.py")
    monkeypatch.chdir(tmp_path)
    found = read(tmp_path / "deep", SMALL + "[models.mine]\nmodel = 'mine.py:Mine'\npower = 2\n")
    mine, _ = planned(found, "mine")
    assert (mine.entry.name, mine.entry.place, mine.values["power"]) == ("Mine", "mine.py:Mine", 2.0)


def test_a_preset_is_resolved_to_its_values(tmp_path: Path) -> None:
    found = read(tmp_path, SMALL + '[models.published]\nmodel = "recfusion"\npreset = "paper"\nT = 4\n')
    values = planned(found, "published")[0].values
    assert (values["T"], values["width"], values["objective"]) == (4, 200, "published")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[run]", "[run"), "Expected TOML in"),
        (("[run]", "[runs]"), "Unknown key 'runs': choose one of name, title, data"),
        (("seeds =", "seed ="), "Unknown key in [run] 'seed': choose one of seeds, metrics"),
        (('data = "ml-1m"', 'date = "ml-1m"'), "Unknown key in [data] 'date': choose one of data, user"),
        (('name = "small"', ""), "expected name, got nothing"),
        (('name = "small"', 'name = "../x"'), "name: string should match pattern"),
        (('name = "small"', "name = 3"), "name: input should be a valid string, got 3"),
        (('data = "ml-1m"', "data = 3"), "[data] data: input should be a valid string, got 3"),
        (
            ("[run]", '[split]\nkind = "odd"\n[run]'),
            "[split] kind: input should be 'strong', 'weak', 'temporal', 'global', 'leave-one-out' or 'given'",
        ),
        (("[run]", '[preparation]\nmin_rating = "four"\n[run]'), "[preparation] min_rating: input should be"),
        (("[3, 1]", "[]"), "list of different seeds from 0, in [run] seeds, got []"),
        (("[3, 1]", "[1, 1]"), "list of different seeds"),
        (("[3, 1]", "[-1]"), "list of different seeds"),
        (("[3, 1]", "0"), "1 to 10,000 splits in [run] seeds, got 0"),
        (("[3, 1]", "true"), "[run] seeds: input should be a valid"),
        (("[3, 1]", "['a']"), "[run] seeds"),
        (("[3, 1]", "[3, 1]\nmetrics = []"), "Expected at least one metric, such as ndcg@100, and none twice, got []"),
        (("[3, 1]", "[3, 1]\nmetrics = ['ndcg@5', 'ndcg@5']"), "and none twice, got ['ndcg@5', 'ndcg@5']"),
        (("[3, 1]", "[3, 1]\nmetrics = ['foo@3']"), "Unknown metric 'foo@3'"),
        (("[models.ease]", ""), "expected models, got nothing"),
        (("[models.ease]", "[models]"), "models: dictionary should have at least 1 item"),
        (("[models.ease]", "[models]\nease = 3"), "[models] ease: input should be a valid dictionary, got 3"),
        (("[models.ease]", "[models.esae]"), "[models.esae]: Unknown model 'esae': choose one of random"),
        (("[models.ease]", "[models.ease]\nmodel = 3"), "[models.ease]: Expected the name or place of a model, got 3"),
        (("[models.ease]", "[models.x]\nmodel = 'no.py:X'"), "[models.x]: Expected a Python file at"),
        (("[models.ease]", "[models.x]\nmodel = 'e.toml:X'"), "[models.x]: Cannot import 'e.toml'"),
        (("[models.ease]", "[models.ease]\nl3 = 3"), "[models.ease]: Unknown setting of ease 'l3': choose one of l2"),
        (("[models.ease]", "[models.ease]\nl2 = 'a'"), "[models.ease]: Setting l2 of ease"),
        (("[models.ease]", "[models.ease]\nl2 = '5'"), "Setting l2 of ease: input should be a valid number; got '5'"),
        (("[models.ease]", "[models.ease]\nl2 = true"), "Setting l2 of ease: input should be a valid number; got True"),
        (("[models.ease]", "[models.recfusion]\nT = 2.0"), "Setting T of recfusion: input should be a valid integer"),
        (("[run]", '[preparation]\nk_core = "yes"\n[run]'), "[preparation] k_core: input should be a valid boolean"),
        (("[models.ease]", "[models.ease]\npreset = 'no'"), "Unknown preset of ease 'no'"),
        (("[models.ease]", "[models.ease]\npreset = ['paper']"), "Unknown preset of ease '['paper']'"),
        (("[models.ease]", "[models.thinning]\nweights = {ease = 2020-01-01}"), "Setting weights of thinning"),
        (
            ("[models.ease]", "[models.thinning]\nparts = {ease = {x = 2020-01-01}}"),
            "Expected settings of thinning that JSON can hold",
        ),
        (
            ("[models.ease]", "[models.ease]\nseeds = 3"),
            "1 to 2 splits in [models.ease] seeds, got 3",
        ),
        (("[models.ease]", "[models.ease]\nseeds = [2]"), "seeds of the experiment (3, 1) in [models.ease] seeds"),
        (("[models.ease]", "[models.'[red]']\nmodel = 'ease'"), "Expected a label of at most 60 letters"),
    ],
)
def test_a_wrong_key_or_value_is_refused_by_file_and_name(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    with pytest.raises(InputError) as refused:
        read(tmp_path, SMALL.replace(*change))
    message = str(refused.value)
    assert words in message
    assert "e.toml'" in message
    assert "\n" not in message


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Expected a file at '.*nosuch.toml', got nothing"):
        read_experiment(tmp_path / "nosuch.toml")
    with pytest.raises(InputError, match="got a folder"):
        read_experiment(tmp_path)
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="codec can't decode"):
        read_experiment(tmp_path / "b.toml")
