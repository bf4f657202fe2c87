"""A full, trainable encoder-decoder and decoder-only Transformer framework."""
