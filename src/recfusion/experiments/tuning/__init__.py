"""Search a model's settings on the validation users, with trials on this machine or on Spark."""
