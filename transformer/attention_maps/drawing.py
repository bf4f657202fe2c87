"""Attention weights as pictures: pages on which every token can be read, and an overview of many heads."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from transformer.attention_maps.fonts import Fonts
from transformer.attention_maps.labels import columns, is_single_character
from transformer.attention_maps.sheet import COLOURS, GAP, INCH, LETTER, LINE, MARGIN, NORM, PROSE, Layout, Sheet

LABEL_POINTS, TITLE_POINTS, THUMB_POINTS = 8.0, 9.0, 7.5
ROW = LABEL_POINTS * LINE / INCH
# Inches. A page wider than a screen would have to be scrolled in two directions, a longer one only down.
PAGE_WIDTH, OVERVIEW_WIDTH = 14.0, 19.0
MIN_CELL, MAX_CELL, MAP, ONLY_MAP = ROW, 0.42, 2.8, 5.0
MIN_THUMB, MAX_THUMB, TALLEST = 1.4, 2.8, 1.6
LABEL_GAP = 3.0  # points
REPEATED = 30  # tokens from which on labels stand on both sides of a map
GUIDES = 5  # tokens from one guide line to the next


class Panel(NamedTuple):
    """One map of weights and its heading."""

    title: str
    weights_QK: Tensor


class Side(NamedTuple):
    """What the rows, or the columns, of all panels of a page are."""

    title: str
    labels: Sequence[str]

    @property
    def length(self) -> float:
        """Of the longest label and the gap beside it, in inches."""
        return max(_length(label, LABEL_POINTS, LETTER) for label in self.labels) + 0.1


class Page(NamedTuple):
    """A page of panels with the same rows and columns.

    Attributes:
        title, note: at its head.
        queries, keys: what rows and columns are.
        visible_QK: bool; where it is False, the picture is left blank.
        panels: from left to right, then down.
        fonts: with glyphs for all labels.
    """

    title: str
    note: str
    queries: Side
    keys: Side
    visible_QK: Tensor
    panels: Sequence[Panel]
    fonts: Fonts


def draw_page(page: Page) -> Figure:
    """Every panel with every token, as large as it takes to read them; side by side where the page is wide enough."""
    num_queries, num_keys = page.visible_QK.shape
    wanted = ONLY_MAP if len(page.panels) == 1 else MAP
    cell = min(max(wanted / max(num_queries, num_keys), MIN_CELL), MAX_CELL)
    above, beside = _key_room(page), page.queries.length
    below, right = above if num_queries > REPEATED else 0.0, beside if num_keys > REPEATED else 0.0
    size = num_keys * cell, num_queries * cell
    # What is written along a map of a few tokens may be longer than the map.
    heading = max(_length(panel.title, TITLE_POINTS) for panel in page.panels)
    around = (
        beside + ROW,
        above + ROW + TITLE_POINTS * LINE / INCH,
        max(right, heading - size[0]),
        max(below, _length(_down(page), LABEL_POINTS) - size[1]),
    )
    width = around[0] + size[0] + around[2]
    num_columns = max(1, min(len(page.panels), int((PAGE_WIDTH - 2 * MARGIN + GAP) / (width + GAP))))
    layout = Layout(size, around, (0.0, 0.0), num_columns)
    sheet = Sheet(page.title, page.note, layout, len(page.panels))
    for number, panel in enumerate(page.panels):
        axes = sheet.axes(number)
        _draw_weights(axes, panel.weights_QK, page.visible_QK, with_lines=True)
        _label_keys(axes, page, at_bottom=below > 0)
        _label_queries(axes, page, at_right=right > 0)
        _annotate(axes, (0, above * INCH + ROW * INCH), panel.title, TITLE_POINTS)
        _annotate(axes, (0, above * INCH), f"{page.keys.title} →", LABEL_POINTS)
        _annotate(axes, (-(beside + ROW) * INCH, 0), _down(page), LABEL_POINTS, rotation=90)
    return sheet.figure


def draw_overview(page: Page, num_columns: int) -> Figure:
    """All panels small, for their patterns; tokens stand at the outer ones, if there is room for all of them."""
    num_queries, num_keys = page.visible_QK.shape
    width = min(max((PAGE_WIDTH - page.queries.length) / num_columns - GAP, MIN_THUMB), MAX_THUMB)
    wanted = MIN_CELL * max(num_keys, num_queries / TALLEST)
    if num_columns * (wanted + GAP) <= OVERVIEW_WIDTH:
        width = max(width, wanted)
    cell = min(width / max(num_keys, num_queries / TALLEST), MAX_CELL)
    with_labels = cell >= MIN_CELL - 1e-9
    note = page.note
    if not with_labels:
        note += f" Rows are {page.queries.title}s, from top to bottom; columns are {page.keys.title}s."
    once = (page.queries.length + ROW, _key_room(page) + ROW) if with_labels else (0.0, 0.0)
    map_size = num_keys * cell, num_queries * cell
    heading = max(_length(panel.title, THUMB_POINTS) for panel in page.panels)
    around = 0.0, THUMB_POINTS * LINE / INCH, max(0.0, heading - map_size[0]), 0.0
    sheet = Sheet(page.title, note, Layout(map_size, around, once, num_columns), len(page.panels))
    for number, panel in enumerate(page.panels):
        axes = sheet.axes(number)
        _draw_weights(axes, panel.weights_QK, page.visible_QK, with_lines=with_labels)
        above = 0.0
        if with_labels and number < num_columns:
            _label_keys(axes, page, at_bottom=False)
            above = _key_room(page) + ROW
        if with_labels and number % num_columns == 0:
            _label_queries(axes, page, at_right=False)
        if with_labels and number == 0:
            _annotate(axes, (0, _key_room(page) * INCH), f"{page.keys.title} →", LABEL_POINTS)
            _annotate(axes, (-once[0] * INCH, 0), _down(page), LABEL_POINTS, rotation=90)
        _annotate(axes, (0, above * INCH + LABEL_GAP), panel.title, THUMB_POINTS)
    return sheet.figure


def _down(page: Page) -> str:
    """What rows are, to be turned upwards: the arrow then points down."""
    return f"← {page.queries.title}"


def _length(text: str, points: float, letter: float = PROSE) -> float:
    """Of a text of that size, in inches."""
    return columns(text) * letter * points / INCH


def _key_room(page: Page) -> float:
    """Height of the labels of columns, most of which are turned."""
    return max(page.keys.length, ROW + 0.1)


def _draw_weights(axes: Axes, weights_QK: Tensor, visible_QK: Tensor, *, with_lines: bool) -> None:
    weights = np.ma.masked_array(weights_QK.numpy(), mask=~visible_QK.numpy())
    axes.imshow(weights, norm=NORM, cmap=COLOURS, aspect="auto", interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(linewidth=0.5, color="grey")
    if not with_lines:
        return
    num_queries, num_keys = visible_QK.shape
    for draw, count, length in ((axes.vlines, num_keys, num_queries), (axes.hlines, num_queries, num_keys)):
        places = np.arange(1, count)
        guides = places[places % GUIDES == 0]
        draw(places - 0.5, -0.5, length - 0.5, colors="white", linewidths=0.3)
        draw(guides - 0.5, -0.5, length - 0.5, colors="grey", linewidths=0.4)


def _label_keys(axes: Axes, page: Page, *, at_bottom: bool) -> None:
    # Annotations: the labels of ticks take twice the time.
    properties = page.fonts.of_size(LABEL_POINTS)
    for y, gap, va in ((1, LABEL_GAP, "bottom"), (0, -LABEL_GAP, "top"))[: 1 + at_bottom]:
        for place, text in enumerate(page.keys.labels):
            axes.annotate(
                text,
                (place, y),
                (0, gap),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="center",
                va=va,
                rotation=0 if is_single_character(text) else 90,
                fontproperties=properties,
            )


def _label_queries(axes: Axes, page: Page, *, at_right: bool) -> None:
    properties = page.fonts.of_size(LABEL_POINTS)
    for x, gap, ha in ((0, -LABEL_GAP, "right"), (1, LABEL_GAP, "left"))[: 1 + at_right]:
        for place, text in enumerate(page.queries.labels):
            axes.annotate(
                text,
                (x, place),
                (gap, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                ha=ha,
                va="center_baseline",
                fontproperties=properties,
            )


def _annotate(axes: Axes, offset: tuple[float, float], text: str, points: float, *, rotation: float = 0) -> None:
    """Write beside the upper left corner of a map; turned text ends there."""
    axes.annotate(
        text,
        (0, 1),
        offset,
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=points,
        rotation=rotation,
        va="bottom" if rotation == 0 else "top",
    )
