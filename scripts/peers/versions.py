"""What was compared, for the record."""

import importlib.metadata
import platform
from collections.abc import Iterable


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Exact versions of some packages, of torch and of Python."""
    found = {name: importlib.metadata.version(name) for name in sorted({"torch", "trueformer", *packages})}
    return {**found, "python": platform.python_version()}
