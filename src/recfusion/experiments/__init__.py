"""Running models under a protocol and gathering what they give."""
