"""What cards say of where data lies: enough to find it again, and nothing of the machine."""

from pathlib import Path

import pytest

from recfusion.core.errors import InputError
from recfusion.data.load import load
from recfusion.data.options import Preparation, Source

LOOSE = Preparation(min_items_per_user=0, min_users_per_item=0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a table in it, and one beside it."""
    for folder in ("work/data", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "table.csv").write_text("user,item\n1,2\n", encoding="utf-8")
        (tmp_path / folder / "titles.csv").write_text("item,title\n2,Up\ni2,Up\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("data/table.csv", "data/table.csv"),
        ("{}/work/data/table.csv", "data/table.csv"),
        ("./data/../data/table.csv", "data/table.csv"),
        ("../work/data/table.csv", "data/table.csv"),
        ("../elsewhere/table.csv", "table.csv"),
        ("data/../../elsewhere/table.csv", "table.csv"),
        ("{}/elsewhere/table.csv", "table.csv"),
    ],
)
def test_a_card_names_no_path_outside_the_working_folder(here: Path, given: str, shown: str) -> None:
    path = given.format(here)
    titles = path.replace("table", "titles")
    source = load(Source(data=path, items=titles), LOOSE).source
    assert (source.data, source.items) == (shown, shown.replace("table", "titles"))


def test_a_link_in_the_working_folder_keeps_its_name(here: Path) -> None:
    Path("linked.csv").symlink_to(here / "elsewhere" / "table.csv")
    assert load("linked.csv", LOOSE).source.data == "linked.csv"


def test_what_is_recorded_can_be_read_again_from_the_working_folder(here: Path) -> None:
    found = load(here / "work" / "data" / "table.csv", LOOSE)
    assert load(found.source, LOOSE).fingerprint == found.fingerprint


def test_a_file_that_is_not_where_the_card_says_must_be_named(here: Path) -> None:
    source = load(here / "elsewhere" / "table.csv", LOOSE, items=here / "elsewhere" / "titles.csv").source
    with pytest.raises(InputError, match=r"Expected a file at 'table\.csv', got nothing: name it with --data"):
        load(source, LOOSE)
    moved = source.moved_to(str(here / "elsewhere" / "table.csv"))
    assert load(moved, LOOSE).n_interactions == 1
    with pytest.raises(InputError, match=r"is neither a data set of the catalog .* name it with --data"):
        load(Source(data="folder"))


def test_a_model_is_judged_again_where_only_the_file_of_titles_has_gone(here: Path) -> None:
    from recfusion.experiments.train import evaluate_bundle, train

    rows = "".join(f"u{user},i{(user + step) % 9}\n" for user in range(30) for step in range(6))
    Path("many.csv").write_text("user,item\n" + rows, encoding="utf-8")
    data = load("many.csv", items=here / "elsewhere" / "titles.csv")
    assert data.source == Source(data="many.csv", items="titles.csv")
    assert evaluate_bundle(train("popularity", data))["ndcg@100"]["mean"] > 0


def test_published_users_are_those_of_sets_that_have_some(here: Path) -> None:
    with pytest.raises(InputError, match=r"published means the table of users .*, and '.*table.csv' is neither"):
        load(here / "elsewhere" / "table.csv", LOOSE, users_file="published")


def test_a_file_of_users_goes_along_where_data_has_moved(here: Path) -> None:
    for source in (Source(data="ml-100k", users_file="published"), Source(data="gone.csv", users_file="users.csv")):
        for place in ("ml-100k", str(here / "elsewhere" / "table.csv")):
            assert source.moved_to(place).users_file == source.users_file
