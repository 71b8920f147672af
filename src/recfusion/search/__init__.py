"""A seeded TPE search over declared ranges."""
