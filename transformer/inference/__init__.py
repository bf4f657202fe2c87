"""A bundle in, texts out."""
