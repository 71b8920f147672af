"""The reference tables in the docs are those of the request records."""

import runpy
import sys

from named_tests import ROOT
from recfusion.inference.request import ListRequest, Reranking
from recfusion.nightly.config import Shop

sys.path.insert(0, str(ROOT / "scripts"))  # for the modules that the script imports


def test_the_tables_are_current() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "reference_tables.py"))
    page = script["PAGE"].read_text(encoding="utf-8")
    assert script["with_tables"](page) == page, "run python scripts/reference_tables.py"
    for name in (*ListRequest.model_fields, *Reranking.model_fields):
        assert name == "reranking" or f"\n| `{name}` | `-" in page


def test_the_table_of_the_paper_s_variants_is_current() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "reference_tables.py"))
    page, tables = script["DIFFUSION"].read_text(encoding="utf-8"), {"family": script["family_table"]()}
    assert script["with_tables"](page, tables) == page, "run python scripts/reference_tables.py"


def test_the_page_of_commands_is_current() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "reference_tables.py"))
    assert script["COMMANDS"].read_text(encoding="utf-8") == script["commands_page"](), (
        "run python scripts/reference_tables.py"
    )


def test_the_keys_of_a_shop_are_current() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "reference_tables.py"))
    page = script["SHOP"].read_text(encoding="utf-8")
    assert script["with_shop_keys"](page) == page, "run python scripts/reference_tables.py"
    assert all(f"| `{name}` |" in page or f"| `[{name}]` |" in page for name in Shop.model_fields)
