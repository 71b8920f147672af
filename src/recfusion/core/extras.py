"""Optional packages: which extra of recfusion installs them, and the one error if a package is missing."""

from contextlib import suppress
from importlib.util import find_spec

from recfusion.core.errors import InputError

# The extra of each package; the packages without one belong to every installation except for the serving set.
EXTRAS = {
    "torch": "nets",
    "matplotlib": "report",
    "numba": "large",
    "pyspark": "spark",
    "fastexcel": "xlsx",
    "huggingface_hub": "hub",
    "mcp": "mcp",
    "mlflow": "mlflow",
    **dict.fromkeys(("fastapi", "httptools", "prometheus_client", "starlette", "uvicorn", "uvloop"), "serve"),
    **dict.fromkeys(("hyperopt", "jinja2", "pyarrow"), ""),
}


def is_installed(package: str) -> bool:
    """Return whether a package can be imported; it is not imported."""
    with suppress(ImportError):
        return find_spec(package) is not None
    return False


def require(package: str, what: str) -> None:
    """Raise the error of a missing package, unless it is installed."""
    if not is_installed(package):
        raise _needs(package, what)


def missing_package(error: BaseException, what: str) -> InputError | None:
    """Return the error of a missing package for a failed import; None if it failed for another reason."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return _needs(package, what) if package in EXTRAS else None


def _needs(package: str, what: str) -> InputError:
    extra = f"'recfusion[{EXTRAS[package]}]'" if EXTRAS[package] else "recfusion"
    return InputError(f"{what} needs the package {package}, which is not installed: pip install {extra}.")
