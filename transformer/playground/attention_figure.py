"""A map of attention weights as SVG, whose cells tell their weight under the pointer."""

import unicodedata
from collections.abc import Sequence

from transformer.attention_maps.maps import AttentionMap, Kind
from transformer.playground.page_text import escaped, notice

MAX_TOKENS = 80
NAMES: dict[Kind, str] = {
    "cross": "Output looks at source",
    "encoder": "Source looks at source",
    "decoder": "Output looks back at itself",
}
HINT = "Point at a cell, or touch it, to read its weight."

# Tells the cell under the pointer in the line above the map; a touch counts as pointing.
SCRIPT = """
element.addEventListener('pointerover', (event) => {
  const title = event.target.querySelector ? event.target.querySelector(':scope > title') : null;
  const readout = element.querySelector('.readout');
  if (title && readout) readout.textContent = title.textContent;
});
"""


def figure(attention: AttentionMap, layer: int | None, head: int | None) -> str:
    """A row for each query, a column for each key, the darker the more weight; blank where a query may not look.

    Args:
        attention: all layers and heads, whole or after :func:`shown_part`.
        layer, head: which one, from 1; None is the mean over all.
    """
    attention = shown_part(attention)
    weights_HQK = attention.weights_LHQK.mean(0) if layer is None else attention.weights_LHQK[layer - 1]
    weights_QK = weights_HQK.mean(0) if head is None else weights_HQK[head - 1]
    queries, keys = len(attention.query_tokens), len(attention.key_tokens)
    # Of a text that goes on, the end is what is new; of a sentence and its translation, reading begins at the start.
    last = attention.kind == "decoder"
    rows, columns = _shown(queries, last), _shown(keys, last)
    drawing = _svg(
        [attention.query_tokens[row].text for row in rows],
        [attention.key_tokens[column].text for column in columns],
        weights_QK.tolist(),
        attention.visible_QK.tolist(),
    )
    cut = ""
    if len(rows) < queries or len(columns) < keys:
        cut = (
            f"The map shows {'the last' if last else 'the first'} {MAX_TOKENS} tokens of each side; there are "
            f"{queries} rows and {keys} columns."
        )
    return (
        f'<div class="attention">{notice(cut, "note")}<p class="readout" aria-live="polite">{HINT}</p>'
        f'<div class="wide" tabindex="0">{drawing}</div></div>'
    )


def shown_part(attention: AttentionMap) -> AttentionMap:
    """The weights that a map of :func:`figure` shows, in memory of their own; the tokens stay all there."""
    last = attention.kind == "decoder"
    rows = _shown(len(attention.query_tokens), last)
    columns = _shown(len(attention.key_tokens), last)
    if attention.visible_QK.shape == (len(rows), len(columns)):
        return attention
    part = (slice(rows.start, rows.stop), slice(columns.start, columns.stop))
    weights_LHQK = attention.weights_LHQK[:, :, *part].clone()
    return attention._replace(weights_LHQK=weights_LHQK, visible_QK=attention.visible_QK[part].clone())


def _shown(number: int, last: bool) -> range:
    return range(max(number - MAX_TOKENS, 0), number) if last else range(min(number, MAX_TOKENS))


def _svg(
    rows: Sequence[str], columns: Sequence[str], weights: Sequence[Sequence[float]], visible: Sequence[Sequence[bool]]
) -> str:
    longest = max(len(rows), len(columns))
    size = 30 if longest <= 16 else 22 if longest <= 40 else 15
    font = 13 if size > 15 else 11
    left = 12 + max(_width(text, font) for text in rows)
    # Column names lean to the right by 60 degrees: their height is most of their length.
    tallest = max(_width(text, font) for text in columns)
    top, lean = 10 + round(0.87 * tallest), 12 + round(0.5 * tallest)
    height = top + size * len(rows) + 6
    # The names of the rows are a picture of their own, which stays where it is while the cells scroll.
    names, cells = [_open(left, height, font, "names")], [_open(size * len(columns) + lean, height, font, "cells")]
    for place, text in enumerate(columns):
        x, y = place * size + size // 2 + 3, top - 5
        cells.append(f'<text transform="translate({x} {y}) rotate(-60)">{escaped(text)}</text>')
    for row, text in enumerate(rows):
        y = top + row * size
        names.append(f'<text x="{left - 7}" y="{y + size // 2 + 4}" text-anchor="end">{escaped(text)}</text>')
        for column, weight in enumerate(weights[row]):
            if visible[row][column]:
                told = f"{escaped(text)} looks at {escaped(columns[column])}: {weight:.4f}"
                cells.append(
                    f'<rect x="{column * size}" y="{y}" fill-opacity="{weight:.3f}"><title>{told}</title></rect>'
                )
    return f'<div class="map" style="--cell: {size - 1}px">{"".join(names)}</svg>{"".join(cells)}</svg></div>'


def _open(width: int, height: int, font: int, name: str) -> str:
    return f'<svg class="{name}" width="{width}" height="{height}" font-size="{font}">'


def _width(text: str, font: int) -> int:
    """Pixels, roughly: wide characters, as of Chinese, are squares, and combining marks take no room."""
    ems = sum(
        0 if unicodedata.combining(char) else 1.0 if unicodedata.east_asian_width(char) in "WF" else 0.62
        for char in text
    )
    return round(ems * font)
