"""Used by every other package: errors, atomic files, process pool, random generators, memory checks, array types."""
