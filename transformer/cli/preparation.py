"""How a training set was made, as tables for the terminal."""

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from transformer.data.preparation.report import CorpusReport, PreparationReport, SideReport
from transformer.training.callbacks import visible


def report_tables(report: PreparationReport) -> list[Table]:
    """Rows kept and left out; examples of those left out; lengths, unknown tokens and round trips; failed ones.

    Tables that would be empty are not there.
    """
    tables = [_rows(report.corpora)] if report.corpora else []
    tables += [_examples(corpus) for corpus in report.corpora if corpus.examples]
    if report.sides:
        tables.append(_tokens(report.sides))
    if any(side.failures for side in report.sides):
        tables.append(_failures(report.sides))
    return tables


def summary_line(report: PreparationReport) -> str:
    """Such as ``kept 28,950 of 29,000 pairs; left out: 31 blank, 19 duplicates``; all corpora together."""
    read, kept = sum(corpus.read for corpus in report.corpora), sum(corpus.kept for corpus in report.corpora)
    rows = {1: "texts", 2: "pairs"}.get(len(report.sides), "rows")
    dropped: dict[str, int] = {}
    for corpus in report.corpora:
        for reason, number in corpus.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + number
    if not dropped:
        return f"kept all {read:,} {rows}"
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in _most_first(dropped))
    return f"kept {kept:,} of {read:,} {rows}; left out: {reasons}"


def _rows(corpora: tuple[CorpusReport, ...]) -> Table:
    table = Table(title="corpora", title_justify="left", box=None, padding=(0, 2))
    table.add_column("corpus", overflow="fold")
    table.add_column("rows")
    table.add_column("number", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    for corpus in corpora:
        lines = [("read", corpus.read), ("kept", corpus.kept)]
        lines += [(f"left out: {reason}", number) for reason, number in _most_first(corpus.dropped)]
        for place, (what, number) in enumerate(lines):
            name = visible(corpus.name) if place == 0 else Text()
            table.add_row(name, what, f"{number:,}", _percentage(number, corpus.read))
    return table


def _examples(corpus: CorpusReport) -> Table:
    widest = max(len(example.texts) for examples in corpus.examples.values() for example in examples)
    table = Table(title=Text(f"left out of {corpus.name}"), title_justify="left", box=None, padding=(0, 2))
    table.add_column("place", overflow="fold", ratio=2)
    for heading in ("text",) if widest < 2 else ("source", "target"):
        table.add_column(heading, overflow="fold", ratio=3)
    for reason, number in _most_first(corpus.dropped):
        examples = corpus.examples.get(reason, ())
        table.add_row(Text(f"{reason}: {number:,}", style="bold"))
        for example in examples:
            table.add_row(visible(example.where), *map(_shown, example.texts))
    return table


def _shown(text: str | None) -> Text:
    """A text of a report for a cell; one that would look like nothing is named."""
    if text is None:
        return Text("(missing)", style="dim")
    if not text:
        return Text("(empty)", style="dim")
    return Text("(white space)", style="dim") if text.isspace() else visible(text)


def _tokens(sides: tuple[SideReport, ...]) -> Table:
    table = Table(title="tokens", title_justify="left", box=None, padding=(0, 2))
    table.add_column("")
    for side in sides:
        table.add_column(side.name, justify="right", no_wrap=True)
    for name, values in _token_lines(sides):
        table.add_row(name, *values)
    return table


def _token_lines(sides: tuple[SideReport, ...]) -> Iterator[tuple[str, list[str]]]:
    lengths = [side.lengths for side in sides]
    yield "texts", [f"{side.texts:,}" for side in sides]
    yield "tokens", [f"{side.tokens:,}" for side in sides]
    yield "tokens per word", [f"{side.tokens_per_word:.2f}" if side.words else "–" for side in sides]
    yield "tokens of a text, on average", [f"{each.mean:,.1f}" for each in lengths]
    for share in (0.5, 0.95, 0.99):
        yield f"{share * 100:.0f} % have at most", [f"{each.quantile(share):,}" for each in lengths]
    yield "the longest has", [f"{each.longest:,}" for each in lengths]
    yield "unknown tokens", [f"{side.unknown:,} ({_percentage(side.unknown, side.tokens)})" for side in sides]
    yield "not the same after decoding", [f"{side.round_trip_failures:,} of {side.checked:,}" for side in sides]


def _failures(sides: tuple[SideReport, ...]) -> Table:
    table = Table(title="not the same after decoding", title_justify="left", box=None, padding=(0, 2))
    table.add_column("side", no_wrap=True)
    table.add_column("text", overflow="fold", ratio=1)
    table.add_column("decoded", overflow="fold", ratio=1)
    for side in sides:
        for failure in side.failures:
            table.add_row(side.name, _shown(failure.text), _shown(failure.decoded))
    return table


def _most_first(dropped: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(dropped.items(), key=lambda item: -item[1])


def _percentage(part: int, whole: int) -> str:
    """In percent; never 0 for what is there, nor 100 where something is missing."""
    if whole == 0:
        return "–"
    share = 100 * part / whole
    if part and share < 0.01:
        return "< 0.01 %"
    if part < whole and share > 99.99:
        return "> 99.99 %"
    return f"{share:.2f} %"
