"""The setting of the C library that our training makes for itself, for those that do not."""

import platform
from collections.abc import Callable

from peers.laps import Contestant
from peers.machine import DeviceName
from transformer.training.host_memory import keep_freed_memory

KEPT = ", memory kept"
NOTE = (
    f"Ours, and a row that ends in `{KEPT.strip(', ')}`, let the C library keep freed memory for the next step, as "
    "transformer-train does by itself (glibc's malloc); all others run as they come."
)


def has_effect(device: DeviceName) -> bool:
    """Whether the setting is there, and the tensors are in memory that the C library gives."""
    return device == DeviceName.CPU and platform.libc_ver()[0] == "glibc"


def with_kept_memory(build: Callable[[], Contestant]) -> Contestant:
    """A contestant whose process has the setting."""
    keep_freed_memory()
    return build()
