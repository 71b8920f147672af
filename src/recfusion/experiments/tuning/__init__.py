"""Searching a model's settings on the validation users, trial by trial, on this machine or through an engine."""
