"""Reading tables: file formats, text lines, column detection and cell values."""
