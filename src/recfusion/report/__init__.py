"""The report: a result document as one self-contained page."""
