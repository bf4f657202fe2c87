"""Compare the project's fast paths with what they replace: interleaved in one run, medians, as ratios."""

import statistics
import time
from collections.abc import Callable
from typing import Annotated

import torch
import typer
from torch import Tensor

from transformer.nn.dropout import Dropout

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def main() -> None:
    """Timings on this machine, which must be quiet: another busy process changes them several times over."""


@app.command()
def dropout(
    rows: Annotated[int, typer.Option(min=1, help="Positions of the activation.")] = 4096,
    width: Annotated[int, typer.Option(min=1, help="Features of the activation.")] = 1024,
    repeats: Annotated[int, typer.Option(min=3, help="Timed pairs, after three untimed ones.")] = 15,
) -> None:
    """Dropout of an activation, forward and backward, against torch's own."""
    x = torch.randn(rows, width, requires_grad=True)
    ours, theirs = Dropout(0.1).train(), torch.nn.Dropout(0.1).train()
    compare(lambda: ours(x), "transformer.nn.dropout", lambda: theirs(x), "torch.nn.Dropout", repeats)


def compare(one: Callable[[], Tensor], one_name: str, two: Callable[[], Tensor], two_name: str, repeats: int) -> None:
    """Time two functions in turn, forward and backward, and print both medians and their ratio."""
    times: dict[str, list[float]] = {one_name: [], two_name: []}
    for repeat in range(repeats + 3):
        for name, function in ((one_name, one), (two_name, two)):
            start = time.perf_counter()
            output = function()
            output.backward(torch.ones_like(output))
            if repeat >= 3:
                times[name].append(1e3 * (time.perf_counter() - start))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        print(f"{name:24} {medians[name]:8.2f} ms  (from {min(values):.2f} to {max(values):.2f})")
    print(f"ratio {medians[two_name] / medians[one_name]:.2f}")


if __name__ == "__main__":
    app()
