"""A figure with a head, a colour scale and room for maps of one size; all lengths are in inches.

Figures are built without pyplot, so nothing global is changed and nothing is left behind.
"""

import math
import textwrap
from typing import NamedTuple

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

DPI = 120
INCH = 72.0  # points
LETTER = 0.62  # greatest average width of the letters of a word, of their points
PROSE = 0.56  # the same in sentences
LINE = 1.35  # from one line to the next, of the points of a letter
TITLE_POINTS, TEXT_POINTS, SCALE_POINTS = 12.0, 9.0, 7.0
MARGIN, GAP, MIN_WIDTH = 0.15, 0.3, 6.0
SCALE_WIDTH, SCALE_HEIGHT, SCALE_ROOM = 3.2, 0.12, 0.65
TICKS = (0, 0.05, 0.1, 0.25, 0.5, 0.75, 1)
# Perceptually uniform, and light where there is little. Weights of a diffuse head are small: a power below 1 keeps them
# apart, and the same scale in all pictures lets them be compared.
NORM = PowerNorm(0.7, vmin=0, vmax=1)
COLOURS = colormaps["magma_r"].with_extremes(bad="white")


class Layout(NamedTuple):
    """Where maps are on a sheet.

    Attributes:
        map: width and height of one map.
        around: room that each map has on its left, above, on its right and below.
        once: room on the left of the first column and above the first row.
        num_columns: maps side by side.
    """

    map: tuple[float, float]
    around: tuple[float, float, float, float]
    once: tuple[float, float]
    num_columns: int

    @property
    def slot(self) -> tuple[float, float]:
        """Width and height of a map with the room around it and the gap to the next."""
        left, above, right, below = self.around
        return left + self.map[0] + right + GAP, above + self.map[1] + below + GAP


class Sheet:
    """An empty figure.

    Args:
        title, note: at the head.
        layout: of its maps.
        num_maps: how many they will be.
    """

    def __init__(self, title: str, note: str, layout: Layout, num_maps: int) -> None:
        self._layout = layout
        self._wide = max(2 * MARGIN + layout.once[0] + layout.num_columns * layout.slot[0] - GAP, MIN_WIDTH)
        lines = [
            (line, points, weight)
            for text, points, weight in ((title, TITLE_POINTS, "bold"), (note, TEXT_POINTS, "normal"))
            for line in textwrap.wrap(text, int((self._wide - 2 * MARGIN) * INCH / (points * PROSE)))
        ]
        head = MARGIN + sum(points * LINE / INCH for _, points, _ in lines)
        self._top = head + SCALE_ROOM + layout.once[1]
        self._high = self._top + math.ceil(num_maps / layout.num_columns) * layout.slot[1]
        self.figure = Figure(figsize=(self._wide, self._high), dpi=DPI, facecolor="white")
        place = MARGIN
        for line, points, weight in lines:
            self._write(line, MARGIN, place, fontsize=points, fontweight=weight, va="top")
            place += points * LINE / INCH
        self._draw_scale(place + 0.1)

    def axes(self, number: int) -> Axes:
        """The axes of one map, counted from left to right, then down."""
        row, column = divmod(number, self._layout.num_columns)
        left, above, _, _ = self._layout.around
        x = MARGIN + self._layout.once[0] + column * self._layout.slot[0] + left
        y = self._top + row * self._layout.slot[1] + above
        return self._axes(x, y, *self._layout.map)

    def _draw_scale(self, y: float) -> None:
        self._write("attention weight", MARGIN, y + SCALE_HEIGHT / 2, fontsize=TEXT_POINTS - 1, va="center")
        bar = self._axes(MARGIN + 1.1, y, SCALE_WIDTH, SCALE_HEIGHT)
        self.figure.colorbar(ScalarMappable(NORM, COLOURS), cax=bar, orientation="horizontal")
        bar.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS], fontsize=SCALE_POINTS)
        bar.tick_params(length=2, pad=2)

    def _write(self, text: str, x: float, y: float, **style: object) -> None:
        self.figure.text(x / self._wide, 1 - y / self._high, text, **style)  # type: ignore[arg-type]

    def _axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Axes whose upper left corner is there; y counts from the top."""
        wide, high = self._wide, self._high
        return self.figure.add_axes((x / wide, 1 - (y + height) / high, width / wide, height / high))
