"""A model folder as an HTTP service with a page on it."""
