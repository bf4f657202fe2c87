"""The five steps as HTML: what is computed, in words, in symbols and in numbers."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from transformer.playground.page_text import number, plain, vector
from transformer.playground.walk import Walk

NOTHING_VISIBLE = "This query may look at no key, so all its weights are 0 and so is its output."


class Step(NamedTuple):
    """One of the five: its name, its formula and what it does; ``matrix`` calls the result for all queries."""

    name: str
    formula: str
    words: str
    matrix: str


STEPS = (
    Step(
        "Dot products",
        "s<sub>ij</sub> = q<sub>i</sub> · k<sub>j</sub>",
        "Multiply the query with each key, number by number, and add up. The larger the sum, the better they match.",
        "S = Q Kᵀ",
    ),
    Step(
        "Scaled",
        "s<sub>ij</sub> / √d<sub>k</sub>",
        "Divide by the square root of the keys’ width, d<sub>k</sub>. Dot products grow with the width; scaled, they "
        "do not, and the softmax stays soft.",
        "S / √d<sub>k</sub>",
    ),
    Step(
        "Masked",
        "s<sub>ij</sub> → −∞ where query i may not look at key j",
        "Put −∞ in place of the scores of keys that the query must not see. This comes before the softmax, so that "
        "nothing is left of them after it.",
        "S / √d<sub>k</sub> + M",
    ),
    Step(
        "Weights",
        "a<sub>ij</sub> = exp(s<sub>ij</sub> − m<sub>i</sub>) / Σ<sub>n</sub> exp(s<sub>in</sub> − m<sub>i</sub>)",
        "The softmax of the row makes shares of it, which add up to 1. Taking away the row’s largest score "
        "m<sub>i</sub> changes no share and keeps the exponentials small.",
        "A = softmax(S / √d<sub>k</sub> + M)",
    ),
    Step(
        "Output",
        "o<sub>i</sub> = Σ<sub>j</sub> a<sub>ij</sub> v<sub>j</sub>",
        "Mix the values in these shares.",
        "O = A V",
    ),
)


def step_html(walk: Walk, query: int, step: int) -> str:
    """One step.

    Args:
        walk: all numbers.
        query: from 0.
        step: from 1 to 5.
    """
    shown = STEPS[step - 1]
    return "".join(
        (
            '<section class="walk">',
            f"<h3><span>Step {step} of {len(STEPS)}</span> {shown.name}</h3>",
            f'<p class="formula">{shown.formula}</p><p>{shown.words}</p>',
            f'<p class="query">Query {query + 1}: {_name("q", query)} = {vector(walk.query_QE[query].tolist())}</p>',
            "" if walk.visible_QK[query].any() else f'<p class="notice note">{NOTHING_VISIBLE}</p>',
            _chain(walk, query, step),
            f'<ol class="worked">{"".join(f"<li>{line}</li>" for line in worked(walk, query, step))}</ol>',
            f"<h4>All queries: <span>{shown.matrix}</span></h4>",
            _matrix(walk, query, step),
            "</section>",
        )
    )


def worked(walk: Walk, query: int, step: int) -> list[str]:
    """How the query's numbers of a step come about, a line each, as HTML."""
    numbers = range(walk.key_KE.shape[0])
    dots, scaled, masked, weights = (
        matrix[query].tolist() for matrix in (walk.dots_QK, walk.scaled_QK, walk.masked_QK, walk.weights_QK)
    )
    match step:
        case 1:
            return [
                f"{_name('q', query)} · {_name('k', key)} = {_products(walk, query, key)} = <b>{number(dots[key])}</b>"
                for key in numbers
            ]
        case 2:
            if walk.scale == 1:
                return [f"{number(dots[key])} stays <b>{number(scaled[key])}</b>" for key in numbers]
            width = walk.key_KE.shape[1]
            return [
                f"{number(dots[key])} / √{width} = {number(dots[key])} / {number(math.sqrt(width))} = "
                f"<b>{number(scaled[key])}</b>"
                for key in numbers
            ]
        case 3:
            return [
                f"key {key + 1} may be seen: <b>{number(masked[key])}</b> stays"
                if masked[key] > -math.inf
                else f"key {key + 1} may not be seen: {number(scaled[key])} becomes <b>−∞</b>"
                for key in numbers
            ]
        case 4:
            largest = max(masked)
            if largest == -math.inf:
                return [f"a<sub>{query + 1}{key + 1}</sub> = <b>{number(weights[key])}</b>" for key in numbers]
            shares = [math.exp(score - largest) for score in masked]
            return [
                f"exp({number(masked[key])} − {plain(round(largest, 4))}) / {number(sum(shares))} = "
                f"{number(shares[key])} / {number(sum(shares))} = <b>{number(weights[key])}</b>"
                if masked[key] > -math.inf
                else f"exp(−∞) = <b>{number(weights[key])}</b>"
                for key in numbers
            ]
        case _:
            values, visible = walk.value_KU.tolist(), walk.visible_QK[query].tolist()
            parts = [
                f"{number(weights[key])} × {_typed(values[key])} = {vector(weights[key] * v for v in values[key])}"
                for key in numbers
                if visible[key]
            ]
            return [*parts, f"{_name('o', query)}, their sum, = <b>{vector(walk.output_QU[query].tolist())}</b>"]


def _typed(values: Sequence[float]) -> str:
    """A value as it was typed in."""
    texts = [f"{value:g}".replace("-", "−") for value in values]
    return plain(values[0]) if len(values) == 1 else f"({', '.join(texts)})"


def _name(letter: str, place: int) -> str:
    """The name of a row, counted from 1."""
    return f"{letter}<sub>{place + 1}</sub>"


def _products(walk: Walk, query: int, key: int) -> str:
    pairs = zip(walk.query_QE[query].tolist(), walk.key_KE[key].tolist(), strict=True)
    return " + ".join(f"{plain(left)} × {plain(right)}" for left, right in pairs)


def _chain(walk: Walk, query: int, step: int) -> str:
    """The query's way through the steps, a row for each key; steps to come are left open."""
    columns = [matrix[query].tolist() for matrix in (walk.dots_QK, walk.scaled_QK, walk.masked_QK, walk.weights_QK)]
    visible = walk.visible_QK[query].tolist()
    heads = "".join(
        f'<th scope="col"{_now(place == step)}>{head}</th>'
        for place, head in enumerate(("q · k", "scaled", "masked", "weight"), start=1)
    )
    rows = []
    for key, seen in enumerate(visible):
        cells = "".join(
            f"<td{_now(place == step)}>{number(column[key]) if place <= step else '…'}</td>"
            for place, column in enumerate(columns, start=1)
        )
        value = vector(walk.value_KU[key].tolist()) if step == len(STEPS) else "…"
        off = ' class="off"' if not seen and step >= 3 else ""
        rows.append(f'<tr{off}><th scope="row">key {key + 1}</th>{cells}<td>{value}</td></tr>')
    foot = ""
    if step >= 4:
        total = number(walk.weights_QK[query].sum().item())
        output = vector(walk.output_QU[query].tolist()) if step == len(STEPS) else "…"
        foot = (
            f'<tfoot><tr><th scope="row">sum</th><td colspan="3"></td><td{_now(step == 4)}>{total}</td>'
            f"<td{_now(step == 5)}>{output}</td></tr></tfoot>"
        )
    return (
        '<div class="wide" tabindex="0"><table class="chain">'
        f'<thead><tr><th scope="col">{_name("q", query)} and</th>{heads}<th scope="col"{_now(step == 5)}>value</th>'
        f"</tr></thead><tbody>{''.join(rows)}</tbody>{foot}</table></div>"
    )


def _matrix(walk: Walk, query: int, step: int) -> str:
    """What a step gives for all queries, with the row of the query that is followed."""
    results: tuple[Tensor, ...] = (walk.dots_QK, walk.scaled_QK, walk.masked_QK, walk.weights_QK, walk.output_QU)
    letter = "k" if step < len(STEPS) else ""
    rows = []
    for place, row in enumerate(results[step - 1].tolist()):
        cells = "".join(f"<td{_shade(value if step == 4 else 0)}>{number(value)}</td>" for value in row)
        rows.append(f'<tr{_now(place == query)}><th scope="row">{_name("q", place)}</th>{cells}</tr>')
    columns = range(1, results[step - 1].shape[1] + 1)
    heads = "".join(f'<th scope="col">{f"{letter}<sub>{n}</sub>" if letter else n}</th>' for n in columns)
    return (
        f'<div class="wide" tabindex="0"><table class="all"><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _now(current: bool) -> str:
    return ' class="now"' if current else ""


def _shade(weight: float) -> str:
    return f' style="--weight: {weight:.3f}"' if weight else ""
