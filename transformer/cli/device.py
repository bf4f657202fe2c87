"""Where a command runs."""

import torch


def choose_device(accelerator: str) -> str:
    """``auto`` is a GPU if there is one, else the CPU. Raises ValueError for one that this machine lacks."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if accelerator == "auto":
        return next(name for name in ("cuda", "mps", "cpu") if available[name])
    if not available[accelerator]:
        raise ValueError(f"the device must be one that this machine has, but {accelerator} is not available.")
    return accelerator
