"""Given splits: training, validation and test pairs from files, on five users by hand."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from recfusion.core.errors import InputError
from recfusion.data.interactions import Interactions
from recfusion.data.load import load
from recfusion.data.options import Source, SplitPlan
from recfusion.data.protocol import Protocol
from recfusion.data.split import Split, split
from recfusion.evaluation.evaluate import evaluate
from recfusion.experiments.candidate import Candidate
from recfusion.experiments.fit import fit_and_judge
from recfusion.models.baselines.popularity import Popularity

GIVEN = SplitPlan(kind="given", valid=0.5)
TRAIN = {1: "abc", 2: "ab", 3: "acd", 4: "bd", 5: "ae"}
TEST = {1: "d", 2: "cd", 4: "a"}


def write(path: Path, pairs: dict[int, str]) -> str:
    rows = [f"{user},{item}" for user, items in pairs.items() for item in items]
    path.write_text("\n".join(["user,item", *rows, ""]), encoding="utf-8")
    return str(path)


def given(folder: Path, train: dict[int, str], test: dict[int, str], valid: dict[int, str] | None = None) -> Source:
    held = None if valid is None else write(folder / "valid.csv", valid)
    test_file = write(folder / "test.csv", test)
    return Source(data=write(folder / "train.csv", train), valid_file=held, test_file=test_file)


def pairs(parts: Split, data: Interactions, which: str) -> dict[int, str]:
    """Return the held-out or shown items of the users of a fold."""
    fold_name, _, part = which.partition(".")
    fold = getattr(parts, fold_name)
    matrix = getattr(fold, part)
    return {
        int(data.users[int(user)]): "".join(data.items.gather(matrix[[row]].indices).to_list())
        for row, user in enumerate(fold.users)
    }


def test_the_test_file_is_found_and_the_training_items_are_shown(tmp_path: Path) -> None:
    data = load(given(tmp_path, TRAIN, TEST))
    assert data.matrix.shape == (5, 5)  # nobody is dropped, though nobody has five items
    parts = split(data, GIVEN)
    assert pairs(parts, data, "test.held_out") == {1: "d", 2: "cd", 4: "a"}
    assert pairs(parts, data, "test.history") == {1: "abc", 2: "ab", 4: "bd"}


def test_without_a_validation_file_a_part_of_the_training_file_validates_and_all_of_it_trains_at_last(
    tmp_path: Path,
) -> None:
    data = load(given(tmp_path, TRAIN, TEST))
    parts = split(data, GIVEN)
    assert parts.whole is not None
    assert parts.whole.nnz == sum(map(len, TRAIN.values()))
    assert parts.train.nnz + parts.valid.held_out.nnz == parts.whole.nnz
    assert (parts.whole - parts.train)[parts.valid.users].toarray().tolist() == parts.valid.held_out.toarray().tolist()
    assert len(parts.valid.users) == 5  # half of each history, at least one item stays
    other = split(data, GIVEN, seed=1)
    assert other.valid.held_out.toarray().tolist() != parts.valid.held_out.toarray().tolist()
    assert pairs(other, data, "test.held_out") == pairs(parts, data, "test.held_out")


def test_a_validation_file_is_used_and_its_items_are_shown_at_the_test(tmp_path: Path) -> None:
    data = load(given(tmp_path, TRAIN, TEST, {2: "e", 3: "b"}))
    parts = split(data, GIVEN)
    assert parts.whole is None
    assert parts.train.nnz == sum(map(len, TRAIN.values()))
    assert pairs(parts, data, "valid.held_out") == {2: "e", 3: "b"}
    assert pairs(parts, data, "valid.history") == {2: "ab", 3: "acd"}
    assert pairs(parts, data, "test.history") == {1: "abc", 2: "abe", 4: "bd"}


def test_the_final_model_is_fitted_on_the_whole_training_file(tmp_path: Path) -> None:
    """Popularity of the training file: a 4, b 3, c 2, d 2, e 1. User 1 misses d, e; 2: c, d, e; 4: a, c, e."""
    data = load(given(tmp_path, TRAIN, TEST))
    parts, metrics = split(data, GIVEN), ("recall@1", "ndcg@1")
    judged = fit_and_judge(Candidate.of("p", "popularity"), data, Protocol.of(data, GIVEN, metrics), parts)
    assert judged.test is not None
    assert judged.test.per_user["recall@1"].tolist() == [1.0, 0.5, 1.0]
    assert np.array_equal(judged.model.score(parts.test.history[:1])[0], [1, 0.75, 0.5, 0.5, 0.25])
    assert judged.test.mean() == evaluate(Popularity().fit(parts.whole), parts.test, parts.whole, metrics).mean()


def test_shared_pairs_are_refused_and_counted(tmp_path: Path) -> None:
    text = r"got 2 in both the training and the test file, such as user 1 and item a:"
    with pytest.raises(InputError, match=text) as error:
        load(given(tmp_path, TRAIN, {1: "ad", 5: "e"}))
    assert error.value.field == "test_file"
    with pytest.raises(InputError, match=r"got 1 in both the validation and the test file"):
        load(given(tmp_path, TRAIN, {1: "d"}, {1: "de"}))


def test_a_pair_twice_in_one_file_counts_once(tmp_path: Path) -> None:
    data = load(given(tmp_path, {**TRAIN, 5: "aae"}, TEST))
    assert data.n_interactions == sum(map(len, TRAIN.values())) + 4


def test_test_users_and_items_unknown_to_training_are_counted(tmp_path: Path) -> None:
    data = load(given(tmp_path, TRAIN, {**TEST, 8: "a", 9: "b", 1: "dx"}))
    found = [note for note in data.report.notes if "training" in note]
    assert found == [
        "test users without a training pair, which are not evaluated: 2 of 5",
        "test items without a training pair, which no model can find, so they count as misses: 1 of 5",
    ]
    assert pairs(split(data, GIVEN), data, "test.held_out") == {1: "dx", 2: "cd", 4: "a"}


def test_a_missing_file_is_named_with_its_option(tmp_path: Path) -> None:
    source = given(tmp_path, TRAIN, TEST)
    for field in ("test_file", "valid_file"):
        with pytest.raises(InputError, match=rf"nothing: name it with --{field[:-5]}-file") as error:
            load(source.model_copy(update={field: str(tmp_path / "gone.csv")}))
        assert error.value.field == field


def test_no_known_test_user_is_an_error(tmp_path: Path) -> None:
    data = load(given(tmp_path, TRAIN, {8: "a", 9: "b"}))
    with pytest.raises(
        InputError, match=r"No user of .* to find in the test: check that the files have the same user ids"
    ):
        split(data, GIVEN)


def test_training_histories_of_one_item_cannot_validate(tmp_path: Path) -> None:
    data = load(given(tmp_path, {1: "a", 2: "b", 3: "a"}, {1: "b"}))
    with pytest.raises(InputError, match=r"No user of 'train.csv' has .* to find in the validation.*--valid-file"):
        split(data, GIVEN)
    assert len(split(load(given(tmp_path, {1: "ac", 2: "b"}, {1: "b"})), SplitPlan(kind="given")).valid.users) == 1


def test_a_given_split_needs_a_test_file_and_a_test_file_a_given_split(tmp_path: Path, groups: Interactions) -> None:
    with pytest.raises(InputError, match=r"needs a file of test pairs.*--test-file"):
        split(groups, GIVEN)
    data = load(given(tmp_path, TRAIN, TEST))
    with pytest.raises(InputError, match=r"--test-file is for --split given"):
        split(data, SplitPlan())
    with pytest.raises(InputError, match=r"leave out --valid-file, it is for your files"):
        load(Source(data="ml-latest-small", valid_file=str(tmp_path / "test.csv")))
    with pytest.raises(InputError, match=r"Expected a test file beside --valid-file"):
        load(Source(data=str(tmp_path / "train.csv"), valid_file=str(tmp_path / "test.csv")))
    with pytest.raises(InputError, match=r"Expected a file at .*absent.csv"):
        load(Source(data=str(tmp_path / "train.csv"), test_file=str(tmp_path / "absent.csv")))


def test_the_protocol_hash_covers_the_parts(tmp_path: Path) -> None:
    one = load(given(tmp_path, TRAIN, TEST))
    two = load(given(tmp_path, {**TRAIN, 1: "abcd"}, {**TEST, 1: "e"}))
    moved = load(given(tmp_path, {**TRAIN, 1: "abd"}, {**TEST, 1: "c"}))
    assert one.fingerprint == moved.fingerprint != two.fingerprint  # the same pairs, in other parts
    cards = [Protocol.of(data, GIVEN, ("ndcg@20",)) for data in (one, two, moved)]
    assert len({card.hash for card in cards}) == 3
    assert Protocol.parse(cards[0].document(), "here").hash == cards[0].hash
    assert "Given split" in cards[0].assumptions()[-1]


def test_files_in_other_forms_have_the_same_users_and_items(tmp_path: Path) -> None:
    """The ids of all files are read in one form."""
    source = given(tmp_path, TRAIN, TEST)
    rows = "\n".join(["user,item", "1.0,d", " 2 ,c", "2,d", "4,a", ""])
    (tmp_path / "test.csv").write_text(rows, encoding="utf-8")
    data = load(source)
    assert pairs(split(data, GIVEN), data, "test.held_out") == TEST


def test_gowalla_is_read_from_its_published_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gowalla"
    folder.mkdir()
    monkeypatch.setenv("RECFUSION_DATA", str(tmp_path))
    for name, text in (("train", "user,item\n0,0\n0,1\n1,1\n1,2\n"), ("test", "user,item\n0,2\n1,0\n")):
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    data = load("gowalla")
    assert data.parts is not None
    assert data.parts.tolist() == [0, 0, 2, 2, 0, 0]
    held_out = split(data, GIVEN).test.held_out
    assert data.items.gather(held_out.indices).to_list() == [2, 0]
    assert split(data, SplitPlan(kind="weak", valid=0.4, test=0.4)).whole is None  # other splits take all pairs
    assert data.report.notes[0] == "6 rows were read; the publisher counts 1,027,370"


def test_gowalla_is_also_read_in_the_form_of_lightgcn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gowalla"
    folder.mkdir()
    monkeypatch.setenv("RECFUSION_DATA", str(tmp_path))
    (folder / "train.txt").write_text("0 0 1\n1 1 2 \n", encoding="utf-8")
    (folder / "test.txt").write_text("0 2\n1\n", encoding="utf-8")  # a user without test items
    data = load("gowalla")
    assert data.parts is not None
    assert data.parts.tolist() == [0, 0, 2, 0, 0]
    (folder / "test.txt").write_text("0 2\n1 x\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 2 of test.txt"):
        load("gowalla")
