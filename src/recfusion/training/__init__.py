"""Training networks: batches, a generator of epochs, early stopping and checkpoints."""
