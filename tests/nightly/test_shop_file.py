"""The file of a shop: known keys, paths, and one sentence about each mistake."""

from pathlib import Path

import pytest

from recfusion.core.errors import InputError
from recfusion.nightly.config import Shop, read_shop


def shop_file(folder: Path, text: str) -> Path:
    (folder / "shop.toml").write_text(text, encoding="utf-8")
    return folder / "shop.toml"


def test_paths_begin_at_the_folder_of_the_file(tmp_path: Path) -> None:
    for name in ("a-1.csv", "a-2.csv", "b.csv"):
        (tmp_path / name).write_text("user,item\n1,2\n", encoding="utf-8")
    (tmp_path / "forget.txt").write_text("\n ann@example.org \n7\n", encoding="utf-8")
    text = 'folder = "m"\norders = ["a-*.csv", "b.csv"]\nproducts = "p.csv"\nforget = "forget.txt"\n'
    shop = read_shop(shop_file(tmp_path, f'{text}[source]\nuser = "user"\n'))
    assert (shop.folder, shop.reports) == (str(tmp_path / "m"), str(tmp_path / "reports"))
    source = shop.whole_source()
    assert [Path(file).name for file in source.files] == ["a-1.csv", "a-2.csv", "b.csv"]
    assert (source.user, source.items) == ("user", str(tmp_path / "p.csv"))
    assert shop.forgotten() == ["ann@example.org", "7"]
    (tmp_path / "forget.txt").unlink()
    with pytest.raises(InputError, match=r"one id per line at '.*' \(forget\), got nothing: create it, empty if"):
        shop.forgotten()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'folder = "m"\norders = "o"\nproduct = "p"',
            f"Unknown key 'product': choose one of {', '.join(Shop.model_fields)}",
        ),
        ('folder = "m"', "expected orders, got nothing: add it"),
        (
            'folder = "m"\norders = "o"\nservice = "localhost:8000"',
            "Expected an address such as http://127.0.0.1:8000 under service, got 'localhost:8000'",
        ),
        (
            'folder = "m"\norders = "o"\n[source]\nuserr = "x"',
            r"Unknown key in \[source\] 'userr': choose one of data, user",
        ),
        ('folder = "m"\norders = "o"\n[split]\nsedes = 1', r"Unknown key in \[split\] 'sedes': choose one of "),
        ('folder = "m"\norders = "o"\n[source]\nitems = "x"', "name the file under products"),
        ('folder = "m"\norders = "o"\nmodel = "eaze"', "Unknown model 'eaze'"),
        ('folder = "m"\norders = "o"\nmodel = "ease"\n[settings]\nl3 = 1', "l3"),
        ('folder = "m"\norders = "o"\nsignals = "loud"', "loud"),
        ('folder = "m"\norders = "o"\npreset = "bar"', "preset"),
        ('folder = "m"\norders = "o"\nmax_drop = 2', "max_drop"),
        ("folder = ", "Expected TOML"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        read_shop(shop_file(tmp_path, text))
    assert "shop.toml" in str(raised.value)


def test_a_missing_file_of_orders_is_one_sentence(tmp_path: Path) -> None:
    shop = read_shop(shop_file(tmp_path, 'folder = "m"\norders = "none-*.csv"'))
    with pytest.raises(InputError, match=r"Expected a file of orders at '.*none-\*.csv', got nothing"):
        shop.whole_source()
