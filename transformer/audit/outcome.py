"""What a check finds, and the report of all of them."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

Status = Literal["pass", "fail", "not applicable"]


class Measurement(NamedTuple):
    """A number that must keep a bound.

    Attributes:
        value: what was measured; a number that is not finite keeps no bound.
        bound: the tolerance.
        text: what was measured, as a sentence.
        at_least: the value must exceed the bound instead of staying within it.
    """

    value: float
    bound: float
    text: str
    at_least: bool = False

    @property
    def passed(self) -> bool:
        """Whether the bound is kept. False for NaN."""
        return self.value > self.bound if self.at_least else self.value <= self.bound


class NotApplicable(Exception):  # noqa: N818  (no error: an answer)
    """A check cannot say anything about this model; the message says why."""


class Violation(Exception):  # noqa: N818
    """A check fails for a reason that is no number; the message says why."""


def one_line(error: Exception) -> str:
    """What a foreign module raised, on one line and not too long for a report."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


@dataclass(frozen=True)
class CheckResult:
    """One row of a report.

    Attributes:
        name: of the check.
        theme: the group it belongs to.
        status: pass, fail or not applicable.
        measured, tolerance: numbers, where there are any.
        at_least: the measured number must exceed the tolerance instead of staying within it.
        sentence: what was measured, what is wrong, or why the check does not apply.
    """

    name: str
    theme: str
    status: Status
    measured: float | None
    tolerance: float | None
    at_least: bool
    sentence: str


@dataclass(frozen=True)
class AuditReport:
    """What an audit found.

    Attributes:
        rows: one for each check.
        notes: what was sampled or changed for the checks.
        seconds: how long it took.
    """

    rows: tuple[CheckResult, ...]
    notes: tuple[str, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    @property
    def failures(self) -> list[CheckResult]:
        """The rows of failed checks."""
        return [row for row in self.rows if row.status == "fail"]

    def row(self, name: str) -> CheckResult:
        """The row of one check."""
        return next(row for row in self.rows if row.name == name)

    def to_plain(self) -> dict[str, Any]:
        """As plain data, ready for JSON: a number that is not finite becomes its name."""
        rows = [asdict(row) for row in self.rows]
        for row in rows:
            value = row["measured"]
            if value is not None and not abs(value) < float("inf"):
                row["measured"] = str(value)
        return {"passed": self.passed, "seconds": self.seconds, "notes": list(self.notes), "checks": rows}
