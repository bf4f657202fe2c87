"""A picture of the lengths of the training texts."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from transformer.data.preparation.histogram import Histogram, IntArray
from transformer.data.preparation.report import PreparationReport, SideReport

MAX_BARS = 60
SHOWN_SHARE = 0.999  # the few longest texts would squeeze all others into the left edge


def draw_lengths(report: PreparationReport, path: Path, *, max_length: int | None = None) -> None:
    """Draw (PNG) how many texts of each side have which length in tokens.

    The axis ends where 99.9 % of the texts do, or at `max_length`; how many are beyond it is written there.

    Args:
        report: What to draw; with one side or more.
        path: The file to write.
        max_length: The model's longest text in tokens, drawn as a line.
    """
    figure = Figure(figsize=(8, 0.8 + 2.6 * len(report.sides)), dpi=120, layout="constrained")
    all_axes = figure.subplots(len(report.sides), sharex=True, squeeze=False)[:, 0]
    longest = [side.lengths.quantile(SHOWN_SHARE) for side in report.sides]
    # A line at the very edge would not be seen.
    edges = bar_edges(max(*longest, 9, 0 if max_length is None else max_length + max_length // 20 + 1) + 1)
    for side, axes in zip(report.sides, all_axes, strict=True):
        _draw_side(axes, side, edges, max_length)
    all_axes[-1].set_xlabel("length in tokens, without begin and end")
    figure.savefig(path, format="png")


def bar_edges(end: int) -> IntArray:
    """Edges of at most 60 bars, of a round width, from 0 to `end` or a little more."""
    width = power = 1
    while -(-end // width) > MAX_BARS:
        steps = {1: 2, 2: 5, 5: 10}
        width = steps[width // power] * power
        power = width if width == 10 * power else power
    return np.arange(0, end + width, width, dtype=np.int64)


def texts_between(lengths: Histogram, edges: IntArray) -> NDArray[np.float64]:
    """Texts from each edge up to, not including, the next; those of a coarse bin count as evenly spread over it."""
    up_to = np.concatenate([[0], np.cumsum(lengths.counts)])
    differences: NDArray[np.float64] = np.diff(np.interp(edges, lengths.edges(), up_to))
    return differences


def _draw_side(axes: Axes, side: SideReport, edges: IntArray, max_length: int | None) -> None:
    lengths = side.lengths
    width = int(edges[1])
    texts = texts_between(lengths, edges)
    axes.bar(edges[:-1], texts, width=width, align="edge", color="tab:blue", linewidth=0)
    if lengths.num_texts:
        for share, name, style in ((0.5, "median", "solid"), (0.95, "95 %", "dashed"), (0.99, "99 %", "dotted")):
            limit = lengths.quantile(share)
            axes.axvline(limit + 1, color="black", linewidth=1, linestyle=style, label=f"{name}: {limit:,}")
    if max_length is not None:
        axes.axvline(max_length + 1, color="tab:red", label=f"max_length: {max_length:,}")
    title = (
        f"{side.name}: {lengths.num_texts:,} texts, {lengths.mean:,.1f} tokens on average, {lengths.longest:,} at most"
    )
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set(xlim=(0, edges[-1]), ylim=(0, max(1.0, 1.05 * float(texts.max()))))
    axes.set_ylabel("texts of each length" if width == 1 else f"texts per {width:,} lengths")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins="auto" if axis is axes.xaxis else 5, integer=True))
        axis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    beyond = lengths.num_texts - round(float(texts.sum()))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper right", title=f"{beyond:,} longer than shown" if beyond else None)
