"""The RecFusion models of the paper and their extensions."""
