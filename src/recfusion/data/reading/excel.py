"""Opens the first sheet of Excel workbooks; needs the extra `xlsx`."""

import logging
import zipfile
from pathlib import Path

import polars as pl

from recfusion.core.errors import InputError
from recfusion.core.extras import require
from recfusion.core.memory import require_memory
from recfusion.data.reading.table import Table

_CELL_COST = 10  # bytes of memory per byte of a sheet
_log = logging.getLogger(__name__)


def open_excel(path: Path, _: str | None, __: str | None) -> Table:
    """Open the first sheet of a workbook; its first row has the names of the columns."""
    require("fastexcel", f"Reading '{path}'")
    import fastexcel

    try:
        with zipfile.ZipFile(path) as parts:
            size = sum(part.file_size for part in parts.infolist())
        require_memory(_CELL_COST * size, f"Reading '{path}'", "save it as CSV first.")
        sheets = fastexcel.read_excel(path).sheet_names
        frame = pl.read_excel(path, sheet_name=sheets[0], infer_schema_length=None, raise_if_empty=False)
    except (zipfile.BadZipFile, fastexcel.FastExcelError, ValueError, IndexError) as error:
        brief = str(error).partition("\n")[0].rstrip(".")[:200]
        raise InputError(f"Expected an Excel workbook at '{path}', got none that can be read ({brief}).") from None
    if len(sheets) > 1:
        _log.warning("Only the first of the %s sheets of '%s', '%s', is read.", len(sheets), path, sheets[0])
    return Table(str(path), frame.lazy(), frame.columns, cuts=(0, frame.height))
