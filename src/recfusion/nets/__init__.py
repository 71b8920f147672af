"""Neural networks: MLP, U-Nets, attention, autoencoders, and layers on sparse rows."""
