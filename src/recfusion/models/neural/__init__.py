"""Neural models: the shared base class, autoencoders, and Gaussian diffusion."""
