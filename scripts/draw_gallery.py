"""Draw the figures of docs/gallery: `python scripts/draw_gallery.py [NAME...]` writes NAME.png beside each NAME.py."""

import inspect
import sys
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "gallery"


def names() -> list[str]:
    """Return the names of the figures."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "drawing")


def draw(name: str, folder: Path = FOLDER) -> Path:
    """Draw one figure and return its path."""
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    path = folder / f"{name}.png"
    import_module(name).draw().savefig(path, dpi=110, metadata={"Software": None})
    return path


def gallery_page() -> str:
    """Return the page of all figures, each with its description and script."""
    lines = [
        "# Gallery\n",
        "Each figure has the short script that makes it; `python scripts/draw_gallery.py` runs them all.\n",
    ]
    about = {name: _about(name) for name in names()}
    lines.append(_html('<div class="gallery">'))
    lines += [f"[![]({name}.png)\\\n{title}](#{_anchor(title)})\n" for name, (title, _) in about.items()]
    lines.append(_html("</div>"))
    for name, (title, text) in about.items():
        lines += [
            f"## {title}\n",
            f"{text}\n",
            f"![{title}]({name}.png)\n",
            _html("<details><summary>Script</summary>"),
        ]
        lines += [f"```{{literalinclude}} {name}.py\n:language: python\n```\n", _html("</details>")]
    return "\n".join(lines)


def _html(text: str) -> str:
    return f"```{{raw}} html\n{text}\n```\n"


def _about(name: str) -> tuple[str, str]:
    text = inspect.cleandoc((FOLDER / f"{name}.py").read_text(encoding="utf-8").split('"""')[1])
    title, _, rest = text.partition("\n")
    return title.rstrip("."), rest.strip()


def _anchor(title: str) -> str:
    return "".join(sign for sign in title.lower().replace(" ", "-") if sign.isalnum() or sign == "-")


if __name__ == "__main__":
    for one in sys.argv[1:] or names():
        print(draw(one).name)
