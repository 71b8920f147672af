"""The reference tables in the docs are those of the request records."""

import runpy

from named_tests import ROOT
from recfusion.inference.request import ListRequest, Reranking


def test_the_tables_are_current() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "reference_tables.py"))
    page = script["PAGE"].read_text(encoding="utf-8")
    assert script["with_tables"](page) == page, "run python scripts/reference_tables.py"
    for name in (*ListRequest.model_fields, *Reranking.model_fields):
        assert name == "reranking" or f"\n| `{name}` | `-" in page


def test_the_page_of_commands_is_current() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "reference_tables.py"))
    assert script["COMMANDS"].read_text(encoding="utf-8") == script["commands_page"](), (
        "run python scripts/reference_tables.py"
    )
