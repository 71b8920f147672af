"""Baselines: popularity, random items, nearest users, item features and graph filters."""
