"""How far the preparation of the data is: a bar on a terminal, a line now and then elsewhere."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

QUIET_SECONDS = 15.0


class PreparationProgress:
    """Shows what is being prepared, once it takes a while; call it as often as there is news.

    Args:
        console: where to show it.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._last = time.monotonic()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Show that so many examples are done, of so many (None: unknown)."""
        if self.console.is_terminal:
            if what not in self._tasks:
                self._tasks[what] = self._bars.add_task(what, total=total)
            self._bars.update(self._tasks[what], completed=done, total=total)
        elif time.monotonic() - self._last > QUIET_SECONDS:
            self._last = time.monotonic()
            of = "" if total is None else f" of {total:,}"
            self.console.print(f"{what}: {done:,}{of}", highlight=False)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._bars.start()
        return self

    def close(self) -> None:
        """Take the bars away."""
        if self.console.is_terminal:  # elsewhere there are none, and stopping them would print a blank line
            self._bars.stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
