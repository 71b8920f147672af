"""The nightly run of a shop: reads orders, events and products, and trains the better recipe."""
