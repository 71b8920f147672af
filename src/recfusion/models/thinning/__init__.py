"""Thinning diffusion: ones are taken away at random and never created; denoisers that predict them back."""
