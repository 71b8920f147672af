"""Run the commands and Python code of documents, and compare or write the output that they show.

Usage: python scripts/run_docs.py [--write] FILE...

In a `console` block, lines that start with `$ ` are commands (`> ` continues one) and the other lines are their output.
The output of a `python` block is the `text` block after it. All blocks of a document run in one temporary folder.
Three dots in the output stand for anything; seconds, times and temporary paths are written as three dots.
A command that ends in ` &` starts a service, which ends with the document; its port is a free one, written as 8000.
"""

import contextlib
import doctest
import io
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```\n(?:\n?```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
VARIES = re.compile(r"\b\d+(\.\d+)?(?= (s|ms|seconds)\b)|/tmp/[\w./-]+|(?<=port )\d+|\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Difference:
    """A command or code block with another output than the one that is shown."""

    code: str
    shown: str
    printed: str


def has_console(path: Path) -> bool:
    """Return whether a document has console blocks."""
    return "```console\n" in path.read_text(encoding="utf-8")


def _commands(block: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with its output."""
    for part in re.split(r"^(?=\$ )", block, flags=re.MULTILINE):
        lines = part.splitlines(keepends=True)
        if lines:
            more = next((n for n, line in enumerate(lines[1:], 1) if not line.startswith("> ")), len(lines))
            yield "".join(line[2:] for line in lines[:more]), "".join(lines[more:])


def _environment() -> dict[str, str]:
    source = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    fixed = {
        "PYTHONPATH": source,
        "PATH": path,
        "COLUMNS": "110",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "OMP_NUM_THREADS": "1",
    }
    return os.environ | fixed


def _shell(command: str, folder: Path) -> str:
    """Return what a command prints, and the message if it refuses its input; any other failure raises."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=_environment(), capture_output=True, text=True, timeout=300
    )
    if done.returncode not in (0, 2):
        raise RuntimeError(f"{command.strip()} ended with {done.returncode}: {done.stderr}")
    return re.sub(r" +$", "", done.stdout, flags=re.MULTILINE) + (done.stderr if done.returncode else "")


@contextlib.contextmanager
def _service(command: str, folder: Path) -> Iterator[int]:
    """Run a command that serves, on a free port, until the block ends; yield the port once it listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = f"exec {command.strip().removesuffix('&')} --port {port}"
    with (folder / "service.log").open("w") as log:
        running = subprocess.Popen(["bash", "-c", line], cwd=folder, env=_environment(), stdout=log, stderr=log)
    try:
        until = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            if running.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{command.strip()} did not start: {(folder / 'service.log').read_text()}")
            time.sleep(0.1)
        yield port
    finally:
        running.terminate()
        running.wait(30)


def run_document(text: str, folder: Path) -> tuple[str, list[Difference]]:
    """Return the document with the output of its blocks, and the outputs that differ from those shown."""
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")  # as in a checkout
    sys.path.insert(0, str(folder))
    with contextlib.ExitStack() as services:
        services.callback(sys.path.remove, str(folder))
        return _run_blocks(text, folder, services)


def _run_blocks(text: str, folder: Path, services: contextlib.ExitStack) -> tuple[str, list[Difference]]:
    module, wrong, port = ModuleType("typed_in"), list[Difference](), 8000
    sys.modules["typed_in"] = module

    def check(code: str, shown: str, printed: str) -> str:
        printed = VARIES.sub("...", printed).rstrip() + "\n" if printed.strip() else ""
        if doctest.OutputChecker().check_output(shown, printed, FLAGS):
            return shown
        wrong.append(Difference(code, shown, printed))
        return printed

    def execute(command: str) -> str:
        nonlocal port
        if command.endswith(" &\n"):
            port = services.enter_context(_service(command, folder))
            return ""
        return _shell(command.replace(":8000", f":{port}"), folder).replace(f":{port}", ":8000")

    def run(match: re.Match[str]) -> str:
        kind, code, shown = match.groups()
        if kind == "console":
            lines = []
            for command, before in _commands(code):
                first, *more = command.splitlines(keepends=True)
                lines.append(f"$ {first}{''.join(f'> {line}' for line in more)}")
                lines.append(check(command, before, execute(command)))
            return f"```console\n{''.join(lines)}```\n" + (f"\n```text\n{shown}```\n" if shown else "")
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.chdir(folder):
            exec(compile(code.replace(":8000", f":{port}"), "document", "exec"), vars(module))
        printed = check(code, shown or "", out.getvalue())
        return f"```python\n{code}```\n" + (f"\n```text\n{printed}```\n" if printed else "")

    return BLOCK.sub(run, text), wrong


def main() -> int:
    """Run the documents; return 1 if an output differs and is not written."""
    write, files = "--write" in sys.argv, [Path(name) for name in sys.argv[1:] if name != "--write"]
    found = False
    for path in files:
        with tempfile.TemporaryDirectory() as folder:
            text, wrong = run_document(path.read_text(encoding="utf-8"), Path(folder))
        for one in wrong:
            print(f"{path}: {one.code.strip()}\n--- shown\n{one.shown}--- printed\n{one.printed}")
        if write:
            path.write_text(text, encoding="utf-8")
        found |= bool(wrong) and not write
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
