"""Faults and the checks that catch them, as a table in Markdown: ``PYTHONPATH=tests/audit python -m zoo.matrix``."""

from transformer.audit.run import CHECKS
from zoo.catalogue import FAULTS


def render() -> str:
    """The checks by number, then one row for each fault."""
    numbers = [str(number) for number in range(1, len(CHECKS) + 1)]
    legend = ", ".join(f"{number} {check.name.replace(',', '')}" for number, check in zip(numbers, CHECKS, strict=True))
    lines = [f"Checks: {legend}.", "", f"| fault | {' | '.join(numbers)} |", f"|---|{':-:|' * len(CHECKS)}"]
    for fault in FAULTS:
        cells = ["✗" if check.name in fault.fails else " " for check in CHECKS]
        lines.append(f"| {fault.text} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(render(), end="")
