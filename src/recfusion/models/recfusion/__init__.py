"""The paper's models and their extensions."""
