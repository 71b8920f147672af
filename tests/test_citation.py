"""CITATION.cff has the fields of its format, and says the same as the package."""

import tomllib
from typing import Any

import pytest

from named_tests import ROOT


@pytest.fixture
def citation() -> dict[str, Any]:
    return pytest.importorskip("yaml").safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_citation_has_the_required_fields_and_those_of_the_package(citation: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["cff-version"] == "1.2.0"
    assert {"title", "message", "authors"} <= set(citation)
    assert citation["authors"] == project["authors"]
    assert citation["title"] == project["name"]
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]
    assert "license-url" not in citation  # would have to be an address


def test_the_citation_names_the_paper(citation: dict[str, Any]) -> None:
    (paper,) = citation["references"]
    assert paper["type"] == "article"
    assert paper["title"].startswith("RecFusion: A Binomial Diffusion Process")
    assert [author["family-names"] for author in paper["authors"]][::5] == ["Bénédict", "Rijke"]
    assert paper["url"].startswith("https://")
