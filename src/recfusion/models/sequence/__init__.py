"""Models that use the order and the times of a history."""
