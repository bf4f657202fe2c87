"""The device that a benchmark runs on: its clock, its memory, its precision, and how batches get there."""

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

BatchT = TypeVar("BatchT", bound=NamedTuple)

STATUS, FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class DeviceName(StrEnum):
    """Where the work is done."""

    CPU = "cpu"
    CUDA = "cuda"


class Precision(StrEnum):
    """Of matrix products: weights, optimizer and loss are float32 in both."""

    FP32 = "fp32"
    BF16 = "bf16"


class Memory(NamedTuple):
    """Bytes that were taken before some work, and at most while it was done."""

    before: int
    peak: int


# Environment in which glibc gives freed memory back at once, so that the resident set is what is in use.
LIVE_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}

# Dense products, from the makers' data sheets: whole names as the driver gives them, (float32, bfloat16) in 1e12
# operations per second. Float32 is torch's default there, without TF32. Variants such as NVL, Laptop or Ti are slower
# or faster, so a name that only begins like one of these is not known.
PEAKS = {
    r"NVIDIA H100 80GB HBM3": (67.0, 989.0),
    r"NVIDIA H100 PCIe": (51.0, 756.0),
    r"NVIDIA H100 NVL": (60.0, 835.0),
    r"NVIDIA H200": (67.0, 989.0),
    r"NVIDIA H200 NVL": (60.0, 835.0),
    r"NVIDIA GH200 (96GB HBM3|120GB|144G HBM3e|480GB)": (67.0, 989.0),
    r"(NVIDIA )?A100(-SXM4|-PCIE|-SXM)?[- ](40|80)GB( PCIe)?": (19.5, 312.0),
    r"NVIDIA L40S": (91.6, 362.0),
    r"NVIDIA L4": (30.3, 121.0),
    r"NVIDIA GeForce RTX 4090": (82.6, 165.2),
    r"NVIDIA GeForce RTX 3090": (35.6, 71.0),
}


def open_device(name: DeviceName) -> torch.device:
    """The device.

    Raises:
        ValueError: there is none.
    """
    if name == DeviceName.CUDA and not torch.cuda.is_available():
        raise ValueError("`--device cuda` needs a CUDA GPU, but this machine has none.")
    return torch.device(name.value)


def describe(device: torch.device) -> str:
    """The device's own name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def peak_flops(device_name: str, precision: Precision) -> float | None:
    """Operations per second on a device's data sheet; None for one that is not in the table."""
    for pattern, (fp32, bf16) in PEAKS.items():
        if re.fullmatch(pattern, device_name):
            return 1e12 * (bf16 if precision == Precision.BF16 else fp32)
    return None


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[None]:
    """Where products are in the precision."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == Precision.BF16)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all its work, so that the clock may be read."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def moved(batches: Iterable[BatchT], device: torch.device) -> Iterator[BatchT]:
    """Batches on the device, each sent while the one before it is being worked on.

    To a GPU they go from pinned memory, without waiting for the copy.
    """
    ahead: BatchT | None = None
    for batch in batches:
        sent = type(batch)(*(_sent(field, device) for field in batch))
        if ahead is not None:
            yield ahead
        ahead = sent
    if ahead is not None:
        yield ahead


def _sent(field: Any, device: torch.device) -> Any:
    if not isinstance(field, Tensor):
        return field
    if device.type == "cuda" and not field.is_pinned():
        field = field.pin_memory()
    return field.to(device, non_blocking=True)


def taken(device: torch.device) -> int:
    """Bytes that this process takes now: of the GPU, or of the machine (the resident set)."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else _status("VmRSS")


def peak(device: torch.device) -> int:
    """Bytes that this process took at most since :func:`forget_peak`."""
    # Not `ru_maxrss`: a new process starts with that of the one that started it.
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else _status("VmHWM")


def forget_peak(device: torch.device) -> None:
    """Begin anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif FORGET.exists():
        FORGET.write_text("5", encoding="ascii")


def _status(name: str) -> int:
    """Of this process; 0 where the system does not tell."""
    if not STATUS.exists():
        return 0
    found = re.search(rf"^{name}:\s*(\d+) kB$", STATUS.read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024
