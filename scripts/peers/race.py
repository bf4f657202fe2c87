"""Training, timed in turns: target tokens a second, beside the fastest peer and the matrix products."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from peers.laps import Check, Lap, Trained, summed

LOSS_WITHIN = 1e-4  # of the loss itself: what float32 rounds differently

Ask = Callable[[Lap | None], Any]
"""A contestant where it runs, asked as :data:`peers.laps.Contestant` says."""


class Plan(NamedTuple):
    """How long a race is: rounds of so many steps each, and no new round after so many minutes."""

    rounds: int
    steps: int
    minutes: float


class Ceiling(NamedTuple):
    """Operations of one target token, those of the matrix products alone per second, and on the device's data sheet."""

    flops_per_token: float
    measured: Callable[[], float] | None
    data_sheet: float | None


class Result(NamedTuple):
    """All rounds that count, operations per second of the products in each, and bytes taken before the first step."""

    laps: dict[str, list[Trained]]
    products: list[float]
    before: dict[str, int]


def check_losses(console: Console, contestants: Mapping[str, Ask]) -> dict[str, float]:
    """Refuse a race with one who computes another loss than our model does with the same weights; the losses.

    Raises:
        ValueError: a loss differs.
    """
    losses = {}
    for name, ask in contestants.items():
        check = ask(None)
        if check is None:
            console.print(f"{name}: has no loss to compare.", highlight=False)
            continue
        assert isinstance(check, Check)
        difference = abs(check.loss - check.expected) / abs(check.expected)
        if not difference < LOSS_WITHIN:
            raise ValueError(
                f"{name} does not compute the same: its first loss is {check.loss:.5f}, but should be "
                f"{check.expected:.5f}."
            )
        console.print(
            f"{name}: first loss {check.loss:.5f}, within {difference:.1e} of what it should be.", highlight=False
        )
        losses[name] = check.loss
    return losses


def run(console: Console, contestants: Mapping[str, Ask], plan: Plan, ceiling: Ceiling) -> Result:
    """One round that does not count, then all in turn, the same steps for everybody in each round."""
    result = Result({name: [] for name in contestants}, [], {})
    began = time.monotonic()
    for number in range(plan.rounds + 1):
        if number > 1 and time.monotonic() - began > 60 * plan.minutes:
            console.print(f"{number - 1} of {plan.rounds} rounds: the {plan.minutes:g} minutes are over.")
            break
        lap = Lap(number * plan.steps, min(plan.steps, 2) if number == 0 else plan.steps)
        for name, ask in contestants.items():
            trained = ask(lap)
            assert isinstance(trained, Trained)
            if number == 0:
                result.before[name] = trained.memory.before
            else:
                result.laps[name].append(trained)
        if number > 0 and ceiling.measured is not None:
            result.products.append(ceiling.measured())
    return result


def figures(result: Result, ceiling: Ceiling, peers: Sequence[str], helped: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Of each contestant: median, least and greatest tokens per second, ratios by round, padding, memory, shares.

    Padding is what the contestant trained on in all rounds; a ratio to another is the median of those of each round.

    Args:
        result: of the race.
        ceiling: what the speeds are compared with.
        peers: all but ours.
        helped: those of them that have a setting which they do not come with; never the fastest peer, which is one as
            its users run it.
    """
    speeds = {name: [lap.amount.target / lap.seconds for lap in laps] for name, laps in result.laps.items()}
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    running = [name for name in peers if name in medians]
    fastest = max((name for name in running if name not in helped), key=lambda name: medians[name], default=None)
    rows = []
    for name, laps in result.laps.items():
        amount = summed(lap.amount for lap in laps)
        ratios = {
            other: statistics.median(mine / his for mine, his in zip(speeds[name], speeds[other], strict=True))
            for other in running
            if other != name
        }
        row = {
            "name": name,
            "tokens_per_second": medians[name],
            "tokens_per_second_min": min(speeds[name]),
            "tokens_per_second_max": max(speeds[name]),
            "fastest_peer": fastest,
            "times_fastest_peer": 1.0 if name == fastest else ratios.get(fastest) if fastest else None,
            "speed_ratios": ratios,
            "source_padding": padding(amount.source, amount.source_positions),
            "target_padding": padding(amount.target, amount.target_positions),
            "peak_bytes": max(lap.memory.peak for lap in laps),
            "bytes_before": result.before[name],
            "flops_per_second": medians[name] * ceiling.flops_per_token,
        }
        if result.products:
            row["share_of_products"] = row["flops_per_second"] / statistics.median(result.products)
        if ceiling.data_sheet is not None:
            row["mfu"] = row["flops_per_second"] / ceiling.data_sheet
        rows.append(row)
    return rows


def padding(real: int, positions: int) -> float | None:
    """Share of positions that hold nothing; None of no positions."""
    return None if positions == 0 else 1 - real / positions


def show(console: Console, title: str, rows: Sequence[Mapping[str, Any]], beside: Sequence[str] = ()) -> None:
    """A table in Markdown.

    Args:
        console: where to.
        title: above it.
        rows: from :func:`figures`.
        beside: peers that get a column of ratios besides the fastest.
    """
    table = Table(box=box.MARKDOWN, title=title, title_justify="left")
    fastest = rows[0]["fastest_peer"]
    columns: list[tuple[str, Callable[[Mapping[str, Any]], str]]] = [
        ("target tokens/s (min..max)", _speed),
        *([] if fastest is None else [(f"times fastest peer ({fastest})", _times_fastest)]),
        *((f"times {peer}", lambda row, peer=peer: _number(row["speed_ratios"].get(peer, 1.0))) for peer in beside),
        ("padding target / source", lambda row: f"{_share(row['target_padding'])} / {_share(row['source_padding'])}"),
        ("peak MB (of it training)", _memory),
    ]
    if "share_of_products" in rows[0]:
        columns.append(("of matrix products", lambda row: _share(row["share_of_products"])))
    if "mfu" in rows[0]:
        columns.append(("MFU", lambda row: _share(row["mfu"])))
    table.add_column("")
    for heading, _ in columns:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(row["name"], *(cell(row) for _, cell in columns))
    console.print(table)


def titled(title: str, result: Result) -> str:
    """A title that also tells the ceiling, if it was measured."""
    if not result.products:
        return title
    return f"{title}; its matrix products alone: {statistics.median(result.products) / 1e9:,.0f} GFLOP/s"


def _times_fastest(row: Mapping[str, Any]) -> str:
    return _number(row["times_fastest_peer"])


def _speed(row: Mapping[str, Any]) -> str:
    low, high = row["tokens_per_second_min"], row["tokens_per_second_max"]
    return f"{row['tokens_per_second']:,.0f} ({low:,.0f}..{high:,.0f})"


def _memory(row: Mapping[str, Any]) -> str:
    return f"{row['peak_bytes'] / 1e6:,.0f} ({(row['peak_bytes'] - row['bytes_before']) / 1e6:,.0f})"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
