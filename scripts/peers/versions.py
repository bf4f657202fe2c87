"""What was compared, for the record."""

import importlib.metadata
from collections.abc import Iterable

from transformer.cli import machine


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Exact versions of some packages, and of all that the card of a model names."""
    return machine.versions() | {name: importlib.metadata.version(name) for name in sorted(packages)}
