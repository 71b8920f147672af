"""Networks: the shared training code, autoencoders and Gaussian diffusion."""
