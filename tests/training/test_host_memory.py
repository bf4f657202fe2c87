"""Freed memory stays with the process."""

import platform
import subprocess
import sys

import pytest

COUNT_FAULTS = """
import resource, sys
import torch
from transformer.training.host_memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
torch.set_num_threads(1)
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(40):
    torch.ones(12_000_000)  # 48 MB
before = faults()
for _ in range(10):
    torch.ones(12_000_000)
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
def test_pages_are_not_made_anew_for_every_block():
    """Ten times 48 MB are 117,000 pages of 4 KiB, or far fewer where the system has huge ones."""
    counts = {}
    for way in ("keep", "default"):
        done = subprocess.run([sys.executable, "-c", COUNT_FAULTS, way], capture_output=True, text=True, check=True)
        counts[way] = int(done.stdout)
    assert counts["keep"] < 1000
    assert counts["default"] > 2000
