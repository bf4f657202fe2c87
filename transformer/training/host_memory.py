"""Memory of the process that trains."""

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h
LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let the C library keep freed blocks for the next batch instead of giving their pages back.

    Every step frees and asks for the same hundreds of megabytes. By default glibc returns large blocks to the system at
    once, and each of their pages has to be made and cleared anew when the next step touches it.

    Returns:
        Whether this C library can be told so; where it cannot, nothing changes.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, LARGEST))
