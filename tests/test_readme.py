"""The README and the other documents: their Python code and commands run, their links and tables are right."""

import doctest
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hub import TOKEN, serving_hub
from recfusion.cli import main as cli
from recfusion.core.extras import is_installed

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [path for path in ROOT.glob("docs/**/*.md") if "generated" not in path.parts and path.parent.name != "gallery"]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md", *PAGES])
INTEGRATIONS = ROOT / "docs" / "how-to" / "integrations.md"  # has a test of its own
WITH_CONSOLE = [
    path for path in DOCUMENTS if "```console\n" in path.read_text(encoding="utf-8") and path != INTEGRATIONS
]
WITH_PYTHON = [
    path
    for path in DOCUMENTS
    if "```python\n" in path.read_text(encoding="utf-8") and path not in (*WITH_CONSOLE, INTEGRATIONS)
]
MOST_BYTES = 7000

# Commands of the README that the test does not run: a pattern of the command, and the reason.
NOT_RUN = {
    r"^serve\b": "it runs until it is stopped; tests/server starts services",
    r"^demo\b": "tests/cli/test_commands.py runs it with small models, .ci/run as it is",
    r"^reproduce\b": "it takes hours; tests/cli/test_report_command.py runs a small one",
    r"--data (ml-1m|ml-100k)\b": "this data set must be downloaded first",
    r"^train .*--data online-retail|^(items add|recommend) (shop|my-shop)": "tests/inference trains these models",
    r"--trust own_model.py|^(train|compare) .*own_model.py": "tests/test_examples.py runs examples/own_model.py",
}


def blocks(text: str, *languages: str) -> list[str]:
    """Return the contents of the code blocks of some languages."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [content for language, content in found if language in languages]


def commands(text: str) -> Iterator[str]:
    """Yield the arguments of each call of recfusion in a shell block, also after &&."""
    for block in blocks(text, "sh", "console", ""):
        for line in re.split(r"\n|&& ", block.replace("\\\n", " ")):
            called = re.match(r"\s*(?:\$ )?(?:\S*/)?recfusion (.*)", line)
            if called:
                yield called[1].strip()


def examples_with_output(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield each Python block with the output that the document shows in a text block right after it."""
    pattern = r"^```python\n(.*?)^```\n(?:\n?```(?:text)?\n(.*?)^```)?"
    for code, output in re.findall(pattern, text, re.DOTALL | re.MULTILINE):
        yield code, output or None


@pytest.fixture
def sample_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the files that the commands of documents name."""
    rows = [(f"u{user}", f"p{item}") for user in range(120) for item in range(user % 4, 40, 4) if (user + item) % 7]
    (tmp_path / "interactions.csv").write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in rows))
    (tmp_path / "products.csv").write_text("item,title,stock\n" + "".join(f"p{n},Product {n},{n}\n" for n in range(40)))
    (tmp_path / "histories.csv").write_text("user,item\nsomebody,p1\nsomebody,p5\n")
    (tmp_path / "today.csv").write_text("user,item\nsomebody,p1\nu1,p5\n")
    (tmp_path / "leavers.txt").write_text("u2\n")
    shutil.copy(tmp_path / "interactions.csv", tmp_path / "orders.csv")
    shutil.copy(ROOT / "examples" / "own_model.py", tmp_path)
    for block in blocks(README, "toml"):
        for name in re.findall(r'^name = "(.*)"', block, re.MULTILINE):
            (tmp_path / f"{name}.toml").write_text(block)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("document", WITH_PYTHON, ids=[path.name for path in WITH_PYTHON])
def test_python_examples_run_and_print_what_the_document_shows(
    document: Path, sample_files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The examples of a document run one after another, as a reader would type them."""
    examples = list(examples_with_output(document.read_text(encoding="utf-8")))
    pytest.importorskip("pandas")
    module = ModuleType("typed_in")
    monkeypatch.setitem(sys.modules, "typed_in", module)
    for code, shown in examples:
        exec(compile(code, document.name, "exec"), vars(module))
        printed = capsys.readouterr().out
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert shown is None or doctest.OutputChecker().check_output(shown, printed, flags), printed


@pytest.mark.parametrize("document", WITH_CONSOLE, ids=[path.name for path in WITH_CONSOLE])
def test_console_commands_print_what_the_document_shows(document: Path, tmp_path: Path) -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "run_docs.py"))
    _, wrong = script["run_document"](document.read_text(encoding="utf-8"), tmp_path)
    assert wrong == []


@pytest.mark.skipif(
    not all(map(is_installed, ("huggingface_hub", "mcp", "mlflow", "sklearn"))), reason="not all extras are installed"
)
def test_the_integrations_run_with_a_local_hub_and_store(tmp_path: Path) -> None:
    """The clients read these variables when they are imported, so the document runs in a process of its own."""
    with serving_hub() as hub:
        variables = {"HF_ENDPOINT": hub.address, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "hub")}
        variables |= {"MLFLOW_TRACKING_URI": (tmp_path / "store").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}
        variables |= {"MLFLOW_DISABLE_TELEMETRY": "true"}
        command = [sys.executable, str(ROOT / "scripts" / "run_docs.py"), str(INTEGRATIONS)]
        done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(hub.commits) == 1


def test_no_python_block_is_left_out() -> None:
    """Blocks of other names for Python would not run."""
    found = {path.name: blocks(path.read_text(encoding="utf-8"), "py", "python3", "pycon") for path in DOCUMENTS}
    assert not any(found.values()), found


def test_a_service_of_a_document_runs_until_its_end(tmp_path: Path) -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "run_docs.py"))
    served = (
        "import http.server as h, sys; h.test(h.SimpleHTTPRequestHandler, port=int(sys.argv[-1]), bind='127.0.0.1')"
    )
    text = f'```console\n$ python -c "{served}" &\n$ echo http://127.0.0.1:8000/\nhttp://127.0.0.1:8000/\n```\n'
    code = "import urllib.request as u\nprint(b'examples' in u.urlopen('http://127.0.0.1:8000/').read())\n"
    shown = f"{text}```python\n{code}```\n\n```text\nTrue\n```\n"
    assert script["run_document"](shown, tmp_path) == (shown, [])
    with pytest.raises(RuntimeError, match="did not start"):
        script["run_document"]("```console\n$ python -c 'raise SystemExit' &\n```\n", tmp_path)


def test_a_document_gets_the_output_of_its_commands_and_code(tmp_path: Path) -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "run_docs.py"))
    text = "```console\n$ echo one\nold\n$ cat <<END\n> two\n> END\n```\n\n```python\nprint(3)\n```\n"
    new, wrong = script["run_document"](text, tmp_path)
    assert new.startswith("```console\n$ echo one\none\n$ cat <<END\n> two\n> END\ntwo\n```\n")
    assert new.endswith("```python\nprint(3)\n```\n\n```text\n3\n```\n")
    assert [one.shown for one in wrong] == ["old\n", "", ""]
    assert script["run_document"](new.replace("one\none", "one\n..."), tmp_path)[1] == []


@pytest.mark.slow
def test_the_notebooks_print_what_they_store() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "run_notebooks.py"))
    assert len(script["notebooks"]()) == 2
    for path in script["notebooks"]():
        assert script["run_notebook"](path)[1] == [], "python scripts/run_notebooks.py --write"


def test_every_figure_of_the_gallery_has_its_picture_and_a_description(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "gallery")
    script = runpy.run_path(str(ROOT / "scripts" / "draw_gallery.py"))
    names = script["names"]()
    assert len(names) >= 15
    assert [name for name in names if not (script["FOLDER"] / f"{name}.png").is_file()] == []
    page = script["gallery_page"]()
    assert all(f"{{literalinclude}} {name}.py" in page for name in names)
    assert script["draw"]("schedules", tmp_path).stat().st_size > 10_000


@pytest.mark.parametrize(
    "document", [ROOT / "README.md", ROOT / "docs" / "how-to" / "updates.md"], ids=lambda it: it.name
)
def test_the_commands_of_a_document_run(
    document: Path, sample_files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands run one after another in one folder, except for those of NOT_RUN."""
    listed = list(commands(document.read_text(encoding="utf-8")))
    assert listed
    for line in listed:
        if any(re.search(pattern, line) for pattern in NOT_RUN):
            continue
        arguments = shlex.split(line.replace("ID,ID,ID", "p1,p5,p9"), comments=True)
        monkeypatch.setattr("sys.argv", ["recfusion", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert stop.value.code in (0, None), (line, capsys.readouterr().err)


def options_of(words: list[str]) -> set[str]:
    """Return the options of the command that a line calls."""
    command: Any = cli.command_line()
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    assert not getattr(command, "commands", {}), f"there is no command {words[:1]}"
    parameters = command.make_context(command.name, [], resilient_parsing=True).command.params
    return {"--help"} | {name for each in parameters for name in (*each.opts, *each.secondary_opts)}


@pytest.mark.parametrize("document", DOCUMENTS, ids=[path.name for path in DOCUMENTS])
def test_every_command_and_option_of_a_document_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for line in [*commands(text), *re.findall(r"`recfusion (\w[^`]*)`", text)]:
        words = re.split(r"[\s,()]+", line.partition(" #")[0])
        if words[0] not in {path.split()[0] for path in cli.COMMANDS if " " in path and len(words) == 1}:
            used = {word.partition("=")[0].strip("[]") for word in words if re.match(r"\[?-(-[a-z]|[a-z]$)", word)}
            assert used <= options_of(words), line


def test_commands_are_found_in_shell_blocks() -> None:
    text = "```sh\npip install . && .venv/bin/recfusion demo\nrecfusion train \\\n  --out x  # why\n```\nrecfusion is\n"
    assert list(commands(text + "```\nrecfusion models\n```\n")) == ["demo", "train    --out x  # why", "models"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=[path.name for path in DOCUMENTS])
def test_every_file_that_a_document_links_to_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    links = [link for link in links if not re.search(r"reference/generated/|gallery/index", link)]  # build_docs.py
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_results_tables_are_what_the_stored_results_give() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "readme_table.py"))
    assert len(script["DOCUMENTS"]) == 2
    for path in script["DOCUMENTS"]:
        text = path.read_text(encoding="utf-8")
        assert script["with_tables"](text) == text, "write them again: scripts/readme_table.py"
    script = runpy.run_path(str(ROOT / "scripts" / "default_table.py"))
    text = script["PAGE"].read_text(encoding="utf-8")
    assert script["with_tables"](text) == text, "write them again: scripts/default_table.py --write"


def test_every_row_of_the_headline_was_fitted_by_today_s_code() -> None:
    table = runpy.run_path(str(ROOT / "scripts" / "readme_table.py"))
    rows = runpy.run_path(str(ROOT / "scripts" / "row_code.py"))["rows"]
    assert len(table["SETS"]) == 5
    for store in table["SETS"]:
        found = [row for row in rows(table["RESULTS"] / f"{store}.jsonl") if row.label in table["HEADLINE"]]
        splits = {(label, seed) for label in table["HEADLINE"] for seed in range(10)}
        assert {(row.label, row.seed) for row in found} == splits, store
        current = {(row.label, row.seed) for row in found if row.state == "current"}
        assert sorted(splits - current) == [], f"{store}: fit these again"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) < MOST_BYTES
