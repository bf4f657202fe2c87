"""The machine and the software that a run was made with, in words."""

import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

PACKAGES = ("trueformer", "torch", "lightning", "tokenizers", "datasets", "sacrebleu", "hydra-core", "numpy")


def machine_in_words(device: str, precision: str) -> str:
    """Such as ``NVIDIA H200, bf16-mixed`` or ``Intel Xeon Gold 6348, 2 threads, bf16-mixed``."""
    parsed = torch.device(device)
    if parsed.type == "cuda":
        return f"{torch.cuda.get_device_name(parsed)}, {precision}"
    name = processor_name()
    threads = torch.get_num_threads()
    place = f"the GPU of {name}" if parsed.type == "mps" else f"{name}, {threads} thread{'s' if threads > 1 else ''}"
    return f"{place}, {precision}"


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The model of the processor as its maker calls it, or its architecture where nothing better is known."""
    if cpuinfo.is_file():
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(encoding="utf-8", errors="replace"), re.M)
        if found:
            return " ".join(found.group(1).split())
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Of Python and of the packages that decide about results; one that is not installed as a package is left out."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def in_words(seconds: float) -> str:
    """Such as ``2 h 05 min`` or ``41 s``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"
