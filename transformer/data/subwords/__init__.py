"""Tokenizers: learnt, loaded, and drawn at random."""
