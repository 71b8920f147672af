"""Adapters to other people's tools; each needs an extra or nothing."""
