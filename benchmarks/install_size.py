"""Download and installed sizes: each set of packages is downloaded, then installed into its own fresh environment.

    .venv/bin/python benchmarks/install_size.py --out benchmarks/install_size.md

A set is a package with extras, or a file of hashes such as requirements/serve-hashes.txt, which is installed as in
deploy/Dockerfile: without dependencies, setuptools and the `tests` folders of packages. `--source DIR` measures another
checkout. Sizes are of all files in site-packages, with compiled bytecode and without pip, in units of 10^6 bytes. No
environment is kept.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETS = (
    "serve-hashes.txt",  # what the container's service needs
    ".",
    ".[serve]",
    ".[nets,report]",
    ".[all]",
)


def megabytes(folder: Path, but: str = "pip") -> float:
    """Return the size of all files in a folder, without the package `but`."""
    files = (Path(here) / name for here, _, names in os.walk(folder) for name in names)
    sizes = (
        file.lstat().st_size
        for file in files
        if file.relative_to(folder).parts[0] != but and not file.relative_to(folder).parts[0].startswith(f"{but}-")
    )
    return sum(sizes) / 1e6


def measure(wanted: str, source: Path) -> tuple[float, float, dict[str, float]]:
    """Return the size of the downloaded and of the installed files, and of the largest packages."""
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        subprocess.run([sys.executable, "-m", "venv", str(work / "env")], check=True)
        pip = [str(work / "env" / "bin" / "python"), "-m", "pip", "--quiet"]
        constraints = ["-c", str(source / "requirements" / "constraints.txt")]
        if wanted.endswith(".txt"):
            asked = ["--no-deps", "--require-hashes", "-r", str(source / "requirements" / wanted)]
        else:
            asked = [*constraints, f"{source}{wanted.removeprefix('.')}"]
        downloads = work / "downloads"
        subprocess.run([*pip, "download", "-d", str(downloads), *asked], check=True)
        subprocess.run([*pip, "install", "--no-deps", *map(str, sorted(downloads.iterdir()))], check=True)
        installed = next((work / "env" / "lib").glob("python*/site-packages"))
        if wanted.endswith(".txt"):
            subprocess.run([*pip, "install", "--no-deps", "--no-build-isolation", str(source)], check=True)
            subprocess.run([*pip, "uninstall", "--yes", "setuptools"], check=True)
            for tests in installed.glob("**/tests"):
                shutil.rmtree(tests, ignore_errors=True)
        each = {folder.name: megabytes(folder, "") for folder in installed.iterdir() if folder.is_dir()}
        largest = dict(sorted(each.items(), key=lambda pair: -pair[1])[:8])
        return megabytes(downloads, ""), megabytes(installed), largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS, help="what to measure, such as '.[nets]'; all by default")
    parser.add_argument("--source", type=Path, default=ROOT, help="the checkout to install")
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    options = parser.parse_args()
    lines = ["| set | download | installed | largest packages |", "|---|---:|---:|---|"]
    print("\n".join(lines), flush=True)
    for wanted in options.sets:
        download, installed, largest = measure(wanted, options.source.absolute())
        shown = ", ".join(f"{name} {size:.0f}" for name, size in largest.items())
        lines.append(f"| `{wanted}` | {download:.0f} MB | {installed:.0f} MB | {shown} |")
        print(lines[-1], flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
