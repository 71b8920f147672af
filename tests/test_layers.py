"""Packages import only packages below them, and `recfusion --help` imports no heavy libraries."""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "recfusion"
LAYERS = [
    *("core", "data", "diffusion", "nets", "evaluation", "training", "models", "inference", "testing"),
    *("paper.tables", "experiments", "integrations", "spark", "report", "paper", "server", "nightly", "cli"),
]


def layer(module: str) -> int:
    """Return the layer of a module: its own entry, or that of its package."""
    parts = module.split(".")
    own = ".".join(parts[:2])
    return LAYERS.index(own if own in LAYERS else parts[0])


def imported_modules(path: Path) -> set[str]:
    """Return the modules of recfusion that a module imports, without the package's name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    ours = {name.removeprefix("recfusion.") for name in names if name.startswith("recfusion.")}
    return {name for name in ours if (SOURCE / name.split(".")[0]).is_dir()}


def test_every_package_is_in_the_list_of_layers() -> None:
    packages = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
    assert packages == {layer for layer in LAYERS if "." not in layer}


def test_imports_go_downwards_only() -> None:
    upward = [
        f"{path.relative_to(SOURCE)} imports {other}"
        for path in SOURCE.glob("*/**/*.py")
        for other in imported_modules(path)
        if layer(other) > layer(".".join(path.relative_to(SOURCE).with_suffix("").parts))
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
