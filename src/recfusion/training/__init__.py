"""Training of networks: batches, epochs, early stopping, checkpoints, and the search of settings."""
