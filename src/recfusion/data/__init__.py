"""From a raw file to a split: catalog, readers, preparation, interactions, splits and the protocol card."""
