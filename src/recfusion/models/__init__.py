"""The recommenders: one contract, one file per model, and MODELS, the one registry."""
