"""Tensors to tensors: attention, masks, positions, norms, layers, losses. No vocabulary, no files, no Lightning."""
