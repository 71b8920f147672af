"""The paper: published values, experiments, figures and `reproduce`."""
