"""Reads what a figure says."""

from matplotlib.figure import Figure
from matplotlib.text import Text


def texts(figure: Figure) -> list[str]:
    """Return every text in a figure."""
    return [found.get_text() for found in figure.findobj(Text) if isinstance(found, Text) and found.get_text()]
