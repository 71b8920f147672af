"""Simple recommenders that every comparison needs."""
