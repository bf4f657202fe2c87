"""Where a command runs."""

import torch


def choose_device(accelerator: str) -> str:
    """``auto`` is a GPU if there is one, else the CPU. Raises ValueError for one that this machine lacks."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if accelerator == "auto":
        return next(name for name in ("cuda", "mps", "cpu") if available[name])
    if not available.get(accelerator, False):
        have = ", ".join(name for name, there in available.items() if there)
        raise ValueError(f"the device must be auto or one that this machine has ({have}), but is {accelerator}.")
    return accelerator
