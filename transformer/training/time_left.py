"""How long a run will still take."""

import math
import time

SPAN = 50  # steps over which their duration is averaged


class TimeLeft:
    """Estimates it from the latest optimizer steps and the last validation, each measured by itself.

    So neither a validation nor a pause before a run is resumed makes the steps look slow. The very first step is left
    out: it also compiles, and starts workers.

    Args:
        total: optimizer steps of the whole run.
        validate_every_n_steps: optimizer steps between validations; the last step always is one.
    """

    def __init__(self, total: int, validate_every_n_steps: int) -> None:
        self.total, self.every = total, validate_every_n_steps
        self._count = -1
        self._step_seconds = self._validation_seconds = 0.0
        self._mark = time.perf_counter()

    def step(self) -> None:
        """An optimizer step has ended."""
        seconds = self._lap()
        self._count += 1
        if self._count > 0:
            self._step_seconds += (seconds - self._step_seconds) / min(self._count, SPAN)

    def pause(self) -> None:
        """A validation begins, or something else that is no training."""
        self._mark = time.perf_counter()

    def validated(self) -> None:
        """A validation has ended."""
        self._validation_seconds = self._lap()

    def seconds(self, done: int) -> float | None:
        """Seconds left after so many steps of the whole run; None while nothing is known."""
        if self._count < 1:
            return None
        validations = math.ceil(self.total / self.every) - done // self.every
        return max(0, self.total - done) * self._step_seconds + validations * self._validation_seconds

    def _lap(self) -> float:
        now = time.perf_counter()
        seconds, self._mark = now - self._mark, now
        return seconds


def clock(seconds: float | None) -> str:
    """Hours, minutes and seconds."""
    if seconds is None:
        return "-:--:--"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
