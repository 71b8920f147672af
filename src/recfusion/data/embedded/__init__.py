"""Data shipped with the package; its terms are in the README and NOTICE beside it."""
