"""A fitted model in use: the folder it is saved in, its card, and the lists that it makes for people."""
