"""Linear item-to-item models in closed form, and the linear algebra they share."""
