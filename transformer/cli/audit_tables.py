"""What an audit found, as a table for the terminal."""

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from transformer.audit.outcome import AuditReport, CheckResult

WIDE = 110  # columns from which on every row has room for its sentence
STYLES = {"pass": "green", "fail": "bold red", "not applicable": "dim"}
SHOWN = {"pass": "pass", "fail": "FAIL", "not applicable": "–"}


def print_report(name: str, report: AuditReport, notes: list[str], console: Console) -> None:
    """A row for each check, what failed and why, and what was sampled.

    Args:
        name: of the model.
        report: what was found.
        notes: on the model.
        console: as wide as the table may be.
    """
    console.print(Text(f"audit of {name}\n", style="bold"))
    wide = console.width >= WIDE
    console.print(_table(report, wide))
    for line in _sentences(report, wide):
        console.print(line)
    for note in [*notes, *report.notes]:
        console.print(Padding(Text(f"note: {note}", style="dim"), (0, 0, 0, 2), expand=False))
    console.print(Text(f"\n{summary(report)}", style=STYLES["pass" if report.passed else "fail"]))


def summary(report: AuditReport) -> str:
    """One line."""
    counts = {status: sum(row.status == status for row in report.rows) for status in STYLES}
    failed = f"{counts['fail']} failed, " if counts["fail"] else ""
    return (
        f"{counts['pass']} checks passed, {failed}{counts['not applicable']} not applicable, in {report.seconds:.1f} s"
    )


def _table(report: AuditReport, wide: bool) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 1), pad_edge=True)
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("tolerance", justify="right", no_wrap=True)
    if wide:
        table.add_column("of what, or why not", overflow="fold")
    theme = ""
    for row in report.rows:
        if row.theme != theme:
            theme = row.theme
            table.add_row(Text(theme, style="italic"))
        cells = [
            Text(f" {row.name}"),
            Text(SHOWN[row.status], style=STYLES[row.status]),
            Text(_number(row.measured)),
            Text("" if row.tolerance is None else f"{'>' if row.at_least else '≤'} {_number(row.tolerance)}"),
        ]
        table.add_row(*cells, *([Text(row.sentence, style=STYLES[row.status] if row.status == "fail" else "")] * wide))
    return table


def _sentences(report: AuditReport, wide: bool) -> Iterator[RenderableType]:
    """Where the table has no room for them: why checks failed, or do not apply."""
    yield Text()
    if wide:
        return
    for status in ("fail", "not applicable"):
        reasons: dict[str, list[CheckResult]] = {}
        for row in report.rows:
            if row.status == status:
                reasons.setdefault(row.sentence, []).append(row)
        for sentence, rows in reasons.items():
            names = ", ".join(f"`{row.name}`" for row in rows)
            line = f"{'FAIL' if status == 'fail' else '–'} {names}: {sentence}"
            yield Padding(Text(line, style=STYLES[status]), (0, 0, 0, 2), expand=False)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e6 else f"{value:.2g}"
