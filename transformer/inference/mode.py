"""Dropout is for training: models answer in evaluation mode, whatever mode they are in."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluation_mode(*models: nn.Module) -> Iterator[None]:
    """Put models and all their parts in evaluation mode, and each part back in its own mode afterwards."""
    training = [module for model in models for module in model.modules() if module.training]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module in training:  # not model.train(): a part that was frozen stays so
            module.training = True
