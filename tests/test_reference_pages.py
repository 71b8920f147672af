"""The reference has every public name, command, option, model, route and setting, and its examples run."""

import doctest
import json
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from named_tests import ROOT
from recfusion.cli.main import COMMANDS, command_line
from recfusion.inference.request import Filters, ListRequest, Reranking
from recfusion.models.registry import MODELS
from recfusion.models.settings import settings_of

sys.path.insert(0, str(ROOT / "scripts"))  # for the modules that the scripts import


@pytest.fixture(scope="module")
def script() -> Mapping[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "reference_pages.py"))


@pytest.fixture(scope="module")
def pages(script: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = script["pages"]()
    return found


def test_every_public_name_has_its_types_and_an_example(pages: Mapping[str, str]) -> None:
    from reference_api import EXAMPLES, MODULES, all_names, examples, public_names

    assert set(examples(EXAMPLES.read_text(encoding="utf-8"))) == set(all_names())
    for path, module in MODULES.items():
        page = pages[f"{path.replace('.', '-')}.md"]
        for name in public_names(module):
            assert f"## {path.replace('recfusion', 'rf', 1)}.{name}\n" in page
            assert f"}} {path}.{name}" in page
    assert "load(data: " in pages["recfusion.md"]
    assert ") -> Interactions\n" in pages["recfusion.md"]


def test_the_examples_of_the_reference_run_and_print_what_it_shows() -> None:
    text = (ROOT / "docs" / "reference" / "examples.txt").read_text(encoding="utf-8")
    test = doctest.DocTestParser().get_doctest(text, {}, "examples.txt", None, 0)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=report.append)
    assert report == []


def test_every_command_and_option_is_in_it(pages: Mapping[str, str]) -> None:
    for path in COMMANDS:
        section = pages["command-options.md"].split(f"## recfusion {path}\n")[1].split("\n## ")[0]
        command: Any = command_line()
        for word in path.split():
            command = command.commands[word]
        for one in command.make_context(command.name, [], resilient_parsing=True).command.params:
            if not getattr(one, "hidden", False) and one.name != "help":
                assert all(f"`{name}`" in section for name in one.opts), (path, one.opts)


def test_every_model_and_setting_is_in_it(pages: Mapping[str, str]) -> None:
    for name, entry in MODELS.items():
        section = pages["models.md"].split(f"\n## {name}\n")[1].split("\n## ")[0]
        assert all(f"| `{key}` |" in section for key in settings_of(entry.load())), name


def test_every_route_is_in_it_with_the_fields_of_its_request(pages: Mapping[str, str]) -> None:
    document = json.loads(pages["openapi.json"])
    for path, methods in document["paths"].items():
        assert all(f"\n## {method.upper()} {path}\n" in pages["routes.md"] for method in methods)
    section = pages["routes.md"].split("## POST /recommend\n")[1].split("\n## ")[0]
    assert all(f"| `{name}` |" in section for name in ListRequest.model_fields if name != "history" or name in section)


def test_every_option_of_data_service_and_shop_is_in_it(script: Mapping[str, Any], pages: Mapping[str, str]) -> None:
    for title, (record, _) in script["RECORDS"].items():
        section = pages["settings.md"].split(f"\n## {title}\n")[1].split("\n## ")[0]
        assert all(f"| `{name}` |" in section for name in record.model_fields), title
    assert all(
        f"| `{name}` |" in pages["settings.md"] for record in (Filters, Reranking) for name in record.model_fields
    )


def test_a_number_that_differs_from_the_stored_one_is_found(tmp_path: Path) -> None:
    from measured import check_document, wrong_numbers

    assert list(wrong_numbers("45.01<!-- ml1m: thinning ndcg@100 --> and 45<!-- ml1m: thinning ndcg@100 -->")) == []
    assert len(list(wrong_numbers("45.03<!-- ml1m: thinning ndcg@100 -->"))) == 1
    assert len(list(wrong_numbers("1<!-- ml1m: no-model ndcg@100 --> 1<!-- benchmarks/none.json: a -->"))) == 2
    assert list(wrong_numbers("+2.24<!-- ml1m: thinning - ease ndcg@100 -->")) == []
    assert list(wrong_numbers("10<!-- ml1m: thinning weights/thinning-pairs -->")) == []
    assert len(list(wrong_numbers("9<!-- ml1m: thinning weights/thinning-pairs -->"))) == 1
    assert len(list(wrong_numbers("0<!-- ml1m: no-model weights/ials -->"))) == 1
    with pytest.raises(ValueError, match="page shows numbers"):
        check_document("page", "1.00<!-- ml1m: thinning ndcg@100 -->")


def test_the_measured_numbers_of_all_documents_are_right() -> None:
    from measured import COMMENT, wrong_numbers

    texts = {path: path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]}
    assert [sentence for text in texts.values() for sentence in wrong_numbers(text)] == []
    assert sum(len(COMMENT.findall(text)) for text in texts.values()) > 20


def test_broken_links_and_files_from_the_network_are_found(tmp_path: Path) -> None:
    from build_docs import broken_links

    (tmp_path / "a.html").write_text('<a href="b.html#here">b</a><a href="https://example.org">ok</a>')
    (tmp_path / "b.html").write_text(
        '<p id="here"></p><a href="c.html">c</a><script src="https://example.org/x.js"></script>'
    )
    assert broken_links(tmp_path) == ["b.html: c.html does not exist", "b.html: loads https://example.org/x.js"]
