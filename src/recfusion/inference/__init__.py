"""A fitted model in use: its folder, its card, and recommendations, similar items and completions."""
