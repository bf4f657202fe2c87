"""Attention to look at: the weights of every layer and head with their tokens, as numbers and as pictures."""
