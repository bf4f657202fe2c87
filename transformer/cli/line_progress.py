"""How far a tool is with the lines of files: done, of how many, how fast, and for how long still."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from transformer.data.corpora.opening import open_bytes

_BLOCK = 1 << 20


class Advance(Protocol):
    """Told of so many more lines."""

    def __call__(self, lines: int) -> None: ...


@contextmanager
def line_progress(files: Sequence[Path]) -> Iterator[Advance]:
    """A bar on standard error, if that is a terminal that shows nothing else."""
    if not files or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda lines: None
        return
    with Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("lines"),
        _Speed(),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=Console(stderr=True),
        redirect_stdout=False,
        refresh_per_second=4,
        speed_estimate_period=120,
    ) as progress:
        task = progress.add_task("", total=_count_lines(files))
        yield lambda lines: progress.advance(task, lines)


class _Speed(ProgressColumn):
    """Lines per second; the speed of the last two minutes."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} lines/s" if speed >= 10 else f"{speed:.1f} lines/s")


def _count_lines(files: Sequence[Path]) -> int | None:
    """Lines of files, compressed or not; None if one of them can be read once only, such as a named pipe."""
    if not all(file.is_file() for file in files):
        return None
    total = 0
    for file in files:
        last = b"\n"
        with open_bytes(file) as stream:
            while block := stream.read(_BLOCK):
                total += block.count(b"\n")
                last = block[-1:]
        total += last != b"\n"
    return total
