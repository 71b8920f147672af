"""Metrics of other people: from Python and from files, per user and for all lists, and what is refused."""

from pathlib import Path

import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.evaluation.list_metrics import ListSet, UserList
from recfusion.experiments.candidate import parse_models
from recfusion.experiments.comparison import compare
from recfusion.experiments.custom_metric import check_search_metric, main_metric, metric, named_metrics

FILE = """
def first_hit(user):
    "1 if the first item is a hit"
    return float(user.hits[:1].any())

def users(lists):
    return len(lists.items)

def nothing(user):
    return float("nan")
"""


def odd_share(user: UserList) -> float:
    return sum(int(str(one)[1:]) % 2 for one in user.ids) / max(1, len(user.ids))


def test_a_function_of_a_user_s_list_has_intervals_and_tests(groups: Interactions) -> None:
    name = metric(odd_share, 5)
    found = compare(groups, {"popularity": {}, "ease": {"l2": 10}}, [4], metrics=["ndcg@10", name])
    assert name.startswith("odd_share#")
    assert 0 < found.models["ease"].mean(name) < 1
    assert found.models["ease"].metrics[name].ci95 is not None
    assert any(test.metric == name for test in found.tests)


def test_an_edited_metric_has_another_name_and_so_another_protocol() -> None:
    names = [metric(own, name="constant") for own in (lambda user: 1.0, lambda user: 2.0)]
    assert names[0] != names[1]


def test_a_metric_of_a_file_runs_in_worker_processes(
    groups: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    asked = ["mine.py:first_hit@5", "mine.py:users@5", "hit_rate@1"]
    found = compare(groups, ["popularity"], [4], metrics=asked, workers=1).models["popularity"]
    first, users, hit = (found.mean(name) for name in named_metrics(asked))
    assert first == hit
    assert users == 8


def test_a_nan_is_counted_and_named(groups: Interactions, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    with pytest.raises(InputError, match=r"nothing#\w+@5 gave NaN or infinity for 8 of 8 lists"):
        compare(groups, ["popularity"], [4], metrics=[f"{tmp_path}/mine.py:nothing@5"])


def wrong(x: ListSet) -> float:
    return float(len(x.items))


def failing(lists: ListSet) -> float:
    raise KeyError(str(len(lists.items)))


def test_what_is_no_metric_is_refused_in_one_sentence(groups: Interactions, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    with pytest.raises(InputError, match=r"one parameter, user .* or lists .*, got x"):
        metric(wrong)
    with pytest.raises(InputError, match="at least 1"):
        metric(odd_share, 0)
    with pytest.raises(InputError, match=r"a function 'absent' in 'mine.py'"):
        named_metrics([f"{tmp_path}/mine.py:absent@5"])
    with pytest.raises(InputError, match=r"such as .*first_hit@20"):
        named_metrics([f"{tmp_path}/mine.py:first_hit"])
    with pytest.raises(InputError, match=r"The metric failing failed .KeyError"):
        compare(groups, ["popularity"], [4], metrics=[metric(failing)])


def test_own_sampled_and_descriptive_metrics_decide_only_if_nothing_else_is_listed() -> None:
    own = metric(odd_share, 5)
    assert main_metric(["recall@5", "ndcg@100", own, "sampled_ndcg@10", "coverage@10"]) == "ndcg@100"
    assert main_metric(["coverage@10", "sampled_ndcg@10", own]) == own
    assert main_metric(["coverage@10", "sampled_ndcg@10"]) == "sampled_ndcg@10"
    assert main_metric(["novelty@10", "coverage@10"]) == "coverage@10"


def test_a_search_that_would_use_another_metric_than_the_deciding_one_is_refused() -> None:
    names, searched = ["recall@5", "ndcg@100"], parse_models("multdae,ease", {}, tune=2)
    check_search_metric("ndcg@100", names, searched)
    check_search_metric(None, names, searched)
    check_search_metric("recall@5", names, parse_models("popularity,ease", {}))
    with pytest.raises(
        InputError, match=r"ndcg@100, by which tune searches settings, got recall@5: list recall@5 last"
    ):
        check_search_metric("recall@5", names, searched)
