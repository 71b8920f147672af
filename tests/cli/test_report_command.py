"""`recfusion report` and `recfusion reproduce`, used as a person would."""

from pathlib import Path

import pytest

from conftest import Command
from recfusion.experiments.experiment_file import Experiment, parse_experiment
from recfusion.experiments.result import pack_store
from recfusion.paper import experiments
from recfusion.paper import tables as paper

PNG = b"\x89PNG\r\n\x1a\n"
SPEC = {
    "name": "ml1m",
    "title": "A small table",
    "data": {"data": "shop.csv"},
    "run": {"seeds": 2},
    "models": {"popularity": {}, "ease": {"l2": 5}, "thin": {"model": "ease", "l2": 9, "seeds": 1}},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with data; no data set but the embedded one is on this machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECFUSION_DATA", str(tmp_path / "no data"))
    monkeypatch.setenv("RECFUSION_CACHE", str(tmp_path / "no cache"))
    items = [6 * step + twin for step in range(4) for twin in range(6)]  # in sixes that the same users have
    rows = [f"u{user},{(6 * user + item) % 54}\n" for user in range(50) for item in items]
    (tmp_path / "shop.csv").write_text("user,item\n" + "".join(rows))
    return tmp_path


@pytest.fixture
def small_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's main experiment replaced by one that takes a moment."""

    def packaged(name: str, *, quick: bool = False, splits: int | None = None) -> Experiment:
        run = {"run": {"seeds": splits}} if splits else {}
        return parse_experiment(SPEC | run, name, folder)

    monkeypatch.setattr(experiments, "packaged_experiment", packaged)
    monkeypatch.setattr(experiments, "missing_data", lambda name: None if name == "ml-1m" else f"No {name} here.")


@pytest.mark.usefixtures("small_table")
def test_a_reproduction_prints_and_writes_its_tables_and_resumes(command: Command, folder: Path) -> None:
    code, printed, told = command("reproduce", "ml1m", "--quick", "--workers", 0)
    assert code == 0
    made = folder / "reproduction" / "ml1m-quick"
    assert {path.name for path in made.iterdir()} == {
        "results.jsonl",
        *(f"ml1m.{suffix}" for suffix in ("html", "md", "csv", "tex", "svg", "png")),
    }
    assert printed.index("Strong generalization") < printed.index("┃ model")
    assert "ease" in printed
    assert "quick version" in told
    assert "5 fits; results are saved in" in told
    page = (made / "ml1m.html").read_text()
    for text in ("This is the quick version", "recfusion reproduce ml1m --quick", ">Splits</th>"):
        assert text in page
    assert "**This is the quick version" in (made / "ml1m.md").read_text()
    assert (made / "ml1m.png").read_bytes().startswith(PNG)
    kept = (made / "results.jsonl").read_bytes()

    code, again, told = command("reproduce", "ml1m", "--quick", "--workers", 0)
    assert code == 0
    assert "5 of them are stored already" in told
    assert (made / "results.jsonl").read_bytes() == kept
    assert again == printed

    code, _, told = command("reproduce", "ablation", "--workers", 0)
    assert "5 fits were copied" in told
    assert "5 of them are stored already" in told


@pytest.mark.usefixtures("small_table")
def test_a_reproduction_with_more_splits_keeps_the_finished_fits_and_names_its_command(
    command: Command, folder: Path
) -> None:
    assert command("reproduce", "ml1m", "--workers", 0)[0] == 0
    code, _, told = command("reproduce", "ml1m", "--splits", 3, "--workers", 0)
    assert code == 0
    assert "7 fits, 5 of them are stored already" in told
    assert "recfusion reproduce ml1m --splits 3" in (folder / "reproduction" / "ml1m" / "ml1m.html").read_text()


@pytest.mark.usefixtures("small_table")
def test_all_makes_what_it_can_and_says_what_it_left_out(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paper, "COUNTS", {"netflix": paper.COUNTS["netflix"]})
    code, printed, told = command("reproduce", "all", "--out", "made", "--workers", 0)
    assert code == 0, told
    assert sorted(path.name for path in (folder / "made").iterdir()) == [
        *("ablation", "figure-architecture", "ml1m", "parameters"),
    ]
    for name in ("counts", "figure-diffusion", "ml25m", "netflix"):
        assert f"Left out {name}: No " in told
    assert "1,410,218" in printed


def test_parameters_are_counted_without_any_data(command: Command, folder: Path) -> None:
    code, printed, _ = command("reproduce", "parameters")
    assert code == 0
    made = folder / "reproduction" / "parameters"
    assert "| recfusion | 1,410,218 | 1,410,218 | 0 |" in (made / "parameters.md").read_text()
    assert "Parameters,codigem,5603886,5603886,0" in (made / "parameters.csv").read_text()
    assert r"\toprule" in (made / "parameters.tex").read_text()
    assert "4,464,216" in printed


def test_counts_name_the_data_that_is_not_here(command: Command, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    code, printed, told = command("reproduce", "counts")
    assert (code, printed) == (2, "")
    assert "data fetch ml-1m" in told
    counts = {"ml-latest-small": paper.COUNTS["ml-1m"], "netflix": paper.COUNTS["netflix"]}
    monkeypatch.setattr(paper, "COUNTS", counts)
    code, printed, told = command("reproduce", "counts", "--quick")
    assert code == 0
    assert "ml-latest-small, train: users" in printed
    assert "Left out: The data set 'netflix' is not on this machine" in told
    assert (folder / "reproduction" / "counts-quick" / "counts.csv").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reproduce", "table9"], "Unknown reproduction 'table9': choose one of parameters, counts, figure-"),
        (["reproduce", "ml25m"], "recfusion data fetch ml-25m"),
        (["reproduce", "counts", "--dry-run"], "Expected one of ml1m, ablation, ml25m, netflix or all for --dry-run"),
        (["reproduce", "counts", "--splits", "3"], "Expected --splits with one of ml1m, ablation, ml25m, netflix or"),
        (["reproduce", "ml1m", "--splits", "3", "--quick"], "and without --quick, got --quick."),
        (["reproduce", "netflix"], "its publisher no longer offers it"),
        (["reproduce", "figure-diffusion"], "recfusion data fetch ml-100k"),
        (["reproduce", "figure-architecture", "--out", "shop.csv"], "got the file 'shop.csv'"),
        (["reproduce", "all", "--out", "shop.csv"], "got the file 'shop.csv'"),
        (["report", "nowhere.jsonl"], "Expected a results store at 'nowhere.jsonl'"),
        (["report", "shop.csv"], "Expected a results store at 'shop.csv'"),
        (["report", "shop.csv", "--out", "page.pdf"], "Unknown file type of a report '.pdf'"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    command: Command, folder: Path, arguments: list[str], words: str
) -> None:
    code, printed, told = command(*arguments)
    assert (code, printed) == (2, "")
    assert words in told
    assert told.startswith("Error: ")
    assert told.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["shop.csv"]


def test_a_report_is_written_beside_the_results_or_in_the_asked_form(command: Command, folder: Path) -> None:
    options = ("--data", "shop.csv", "--models", "popularity,ease", "--set", "ease.l2=5", "--splits", 2)
    code, _, _ = command("compare", *options, "--out", "results.jsonl", "--workers", 0)
    assert code == 0
    assert command("report", "results.jsonl")[0] == 0
    page = (folder / "results.html").read_text()
    for text in ("By activity of the user", "recfusion run again.toml", "l2 = 5"):
        assert text in page
    for suffix, words in ((".md", "## ndcg@100"), (".csv", "table,model"), (".tex", "toprule"), (".svg", "<svg")):
        assert command("report", "results.jsonl", "--out", f"made/table{suffix}")[0] == 0
        assert words in (folder / "made" / f"table{suffix}").read_text()
    packed = pack_store("results.jsonl")
    for store in ("results.jsonl", packed):
        (folder / "results.html").unlink()
        assert command("report", store)[0] == 0
        assert (folder / "results.html").read_text() == page


def test_a_report_of_one_experiment_leaves_out_what_else_a_store_holds(command: Command, folder: Path) -> None:
    spec = 'name = "t"\n[data]\ndata = "shop.csv"\n[run]\nseeds = 1\n[models.ease]\nl2 = 5\n'
    for name, text in (("one", spec), ("two", spec.replace("l2 = 5", "l2 = 50.0"))):
        (folder / f"{name}.toml").write_text(text)
        assert command("run", f"{name}.toml", "--out", "t.jsonl", "--workers", 0)[0] == 0
    code, _, told = command("report", "t.jsonl")
    assert code == 2
    assert "Expected one set of settings for ease" in told
    assert "--experiment" in told
    assert command("report", "t.jsonl", "--experiment", "two.toml")[0] == 0
    page = (folder / "t.html").read_text()
    (folder / "three.toml").write_text(spec.replace("l2 = 5", "l2 = 7"))
    assert "Expected results of 'three.toml'" in command("report", "t.jsonl", "--experiment", "three.toml")[2]
    assert "Expected a results store" in command("report", "shop.csv", "--experiment", "two.toml")[2]
    assert "l2 = 50.0" in page
    assert "Examples" in page


def test_a_report_of_a_torn_store_says_so(command: Command, folder: Path) -> None:
    spec = 'name = "t"\n[data]\ndata = "shop.csv"\n[run]\nseeds = 2\n[models.popularity]\n'
    (folder / "t.toml").write_text(spec)
    assert command("run", "t.toml", "--out", "t.jsonl", "--workers", 0)[0] == 0
    store = folder / "t.jsonl"
    store.write_bytes(store.read_bytes()[:-100])
    before = store.read_bytes()
    assert command("report", "t.jsonl")[0] == 0
    assert store.read_bytes() == before
    assert "popularity" in (folder / "t.html").read_text()


def test_a_page_shows_on_the_map_of_a_model_where_it_is_good(command: Command, folder: Path) -> None:
    split = ["--data", "shop.csv", "--seed", "0"]
    assert command("train", "ease", *split, "--out", "model")[0] == 0
    assert command("compare", "--models", "ease,popularity", "--data", "shop.csv", "--out", "r.jsonl")[0] == 0
    assert command("report", "r.jsonl", "--map", "model")[0] == 0
    text = (folder / "r.html").read_text(encoding="utf-8")
    assert '<h2 id="map">By place on the map</h2>' in text
    assert '<img src="data:image/png;base64,' in text
    code, _, error = command("report", "r.jsonl", "--map", "model", "--out", "r.md")
    assert code == 2
    assert "Expected a page" in error
    assert (
        command("train", "ease", *split, "--min-users-per-item", "1", "--min-items-per-user", "9", "--out", "other")[0]
        == 0
    )
    code, _, error = command("report", "r.jsonl", "--map", "other")
    assert code == 2
    assert "under the protocol" in error
