"""Dropout is for training: models answer in evaluation mode, whatever mode they are in."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model and all its parts in evaluation mode, and each part back in its own mode afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:  # not model.train(): a part that was frozen stays so
            module.training = True
