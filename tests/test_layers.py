"""The import rule: rooms import downwards only, and heavy libraries stay out of `recfusion --help`."""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "recfusion"
LAYERS = [
    *("core", "data", "diffusion", "nets", "evaluation", "training", "search", "models", "serving", "testing"),
    *("experiments", "tuning", "spark", "report", "serve", "cli"),
]


def imported_rooms(path: Path) -> set[str]:
    """Return the rooms of recfusion that a module imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("recfusion.")}


def test_every_room_is_in_the_list_of_layers() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
    assert rooms == set(LAYERS)


def test_imports_go_downwards_only() -> None:
    upward = [
        f"{path.relative_to(SOURCE)} imports {other}"
        for place, room in enumerate(LAYERS)
        for path in (SOURCE / room).rglob("*.py")
        for other in imported_rooms(path)
        if LAYERS.index(other) > place
    ]
    assert upward == []


def test_spark_alone_imports_pyspark() -> None:
    users = {
        path.relative_to(SOURCE).parts[0]
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyspark"))
        or (isinstance(node, ast.Import) and any(alias.name.startswith("pyspark") for alias in node.names))
    }
    assert users == {"spark"}


def test_the_command_line_starts_without_heavy_libraries() -> None:
    code = "import sys, recfusion.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {
        "numpy",
        "scipy",
        "polars",
        "pyarrow",
        "torch",
        "matplotlib",
        "jinja2",
        "rich.progress",
        "pyspark",
        "hyperopt",
    }
    assert heavy & set(loaded) == set()


def test_every_public_name_can_be_imported() -> None:
    import recfusion

    names = [name for name in dir(recfusion) if not name.startswith("_")]
    assert len(names) > 20
    assert [name for name in names if not hasattr(recfusion, name)] == []
