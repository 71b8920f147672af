"""From scores to numbers: top-K lists, metrics per user, intervals and paired tests."""
