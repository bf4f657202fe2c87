"""Worked examples to begin with."""

from typing import NamedTuple

from transformer.playground.matrices import Matrices, Matrix


class Preset(NamedTuple):
    """An example.

    Attributes:
        matrices: queries, keys and values.
        scaled: whether scores are divided by the square root of the width.
        causal: whether queries look only at keys up to their own place.
        query: number, from 1, of the query to follow.
        about: what there is to see.
    """

    matrices: Matrices
    scaled: bool
    causal: bool
    query: int
    about: str


_EYE: Matrix = [[1, 0], [0, 1]]
_STEP: Matrix = [
    [0.43, 0.15, 0.89],
    [0.55, 0.87, 0.66],
    [0.57, 0.85, 0.64],
    [0.22, 0.58, 0.33],
    [0.77, 0.25, 0.10],
    [0.05, 0.80, 0.55],
]

PRESETS = {
    "Two tokens": Preset(
        Matrices(_EYE, _EYE, [[10, 0], [0, 10]]),
        scaled=True,
        causal=False,
        query=1,
        about="Each query matches its own key best, yet the other key keeps a third of the weight: a softmax never "
        "gives exactly 0 to a key that may be seen.",
    ),
    "One query": Preset(
        Matrices([[1, 0]], _EYE, [[10], [20]]),
        scaled=True,
        causal=False,
        query=1,
        about="The smallest example: one query, two keys, and two numbers as values. The output lies between 10 and "
        "20, closer to the value whose key matches.",
    ),
    "Six tokens": Preset(
        Matrices(_STEP, _STEP, _STEP),
        scaled=True,
        causal=True,
        query=2,
        about="Causal self-attention over “Your journey starts with one step”, with Q = K = V. The query is “journey”; "
        "it may look at “Your” and at itself.",
    ),
    "Zero scores": Preset(
        Matrices([[0, 0], [0, 0], [0, 0]], [[1, 0], [0, 1], [1, 1]], [[3, 0], [6, 3], [9, 9]]),
        scaled=True,
        causal=True,
        query=3,
        about="Where all scores are 0, each query takes the plain mean of the values that it may see: 1, then ½ and ½, "
        "then a third of each.",
    ),
    "Cached keys": Preset(
        Matrices([[1, 0], [0, 1]], [[1, 0], [0, 1], [1, 1], [0, 2]], [[1, 0], [0, 1], [2, 2], [4, 0]]),
        scaled=True,
        causal=True,
        query=1,
        about="Two new queries over four keys, as when a model writes on from cached keys: the last query sees all "
        "keys, the one before it all but the last.",
    ),
    "Nothing to see": Preset(
        Matrices([[1, 0], [0, 1], [1, 1]], [[1, 0], [0, 1]], [[10, 0], [0, 10]]),
        scaled=True,
        causal=True,
        query=1,
        about="More queries than keys: the first query may see no key at all. Its weights and its output are 0, not "
        "NaN.",
    ),
}
