"""Neural networks: a three-layer MLP, time embeddings, and one U-Net for vectors and matrices."""
