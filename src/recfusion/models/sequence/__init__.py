"""Models that read the order and the times of a history."""
