"""Several ways to do the same, timed in turn, and what came out of them."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

Outputs = list[list[int]]


class Timed(NamedTuple):
    """Seconds of each round, and the outputs, which are the same in all."""

    seconds: list[float]
    outputs: Outputs

    @property
    def median(self) -> float:
        """Seconds of the middle round."""
        return statistics.median(self.seconds)


class Answer(NamedTuple):
    """What one run gave (of a search, :data:`Outputs`), and the seconds that it took."""

    outputs: Any
    seconds: float


def in_turn(runs: Mapping[str, Callable[[], Answer]], repeats: int) -> dict[str, Timed]:
    """Run all, then all again: what else the machine does meanwhile hits everybody alike.

    One more round before them, in which everybody makes its buffers, is not counted.
    """
    timed: dict[str, Timed] = {}
    for number in range(repeats + 1):
        for name, run in runs.items():
            answer = run()
            timed.setdefault(name, Timed([], answer.outputs))
            if number > 0:
                timed[name].seconds.append(answer.seconds)
            if answer.outputs != timed[name].outputs:
                raise ValueError(f"{name} gave other outputs in another round, so its times are not of the same work.")
    return timed


def rows(timed: Mapping[str, Timed], *, ours: str, bleu: Mapping[str, float] | None = None) -> list[dict[str, Any]]:
    """The figures of each contestant; ``identical`` is the share of outputs that equal those of `ours`."""
    result = []
    for name, one in timed.items():
        tokens = sum(map(len, one.outputs))
        pairs = list(zip(one.outputs, timed[ours].outputs, strict=True))
        row = {
            "name": name,
            "seconds": one.median,
            "seconds_min": min(one.seconds),
            "seconds_max": max(one.seconds),
            "sentences_per_second": len(one.outputs) / one.median,
            "tokens_per_second": tokens / one.median,
            "speed_ratios": {other: timed[other].median / one.median for other in timed if other != name},
            "identical": sum(output == other for output, other in pairs) / len(pairs),
        }
        result.append(row | ({} if bleu is None else {"bleu": bleu[name]}))
    return result


def show(console: Console, title: str, figures: Sequence[Mapping[str, Any]], *, peers: Sequence[str]) -> None:
    """A table in Markdown, with how many times as fast as each peer everybody is."""
    table = Table(box=box.MARKDOWN, title=title, title_justify="left")
    table.add_column("")
    headings = ["seconds (min..max)", "ms/sentence", "sentences/s", "tokens/s", *(f"times {peer}" for peer in peers)]
    for heading in [*headings, "same as ours", *(["BLEU"] if "bleu" in figures[0] else [])]:
        table.add_column(heading, justify="right")
    for row in figures:
        table.add_row(
            row["name"],
            f"{row['seconds']:.2f} ({row['seconds_min']:.2f}..{row['seconds_max']:.2f})",
            f"{1e3 / row['sentences_per_second']:.2f}",
            f"{row['sentences_per_second']:.1f}",
            f"{row['tokens_per_second']:.0f}",
            *(f"{row['speed_ratios'][peer]:.2f}" if peer != row["name"] else "1" for peer in peers),
            f"{row['identical']:.1%}",
            *([f"{row['bleu']:.2f}"] if "bleu" in row else []),
        )
    console.print(table)
