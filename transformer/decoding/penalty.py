"""Length normalisation: what makes log probabilities of outputs of different lengths comparable."""

from typing import Literal, assert_never

Normalization = Literal["gnmt", "average"]


def length_penalty(normalization: Normalization, exponent: float, length: int) -> float:
    """What the log probability of an output is divided by.

    ``gnmt``: ``((5 + length) / 6)^exponent`` (Wu et al. 2016, equation 14, without coverage); ``average``:
    ``length^exponent``, which for an exponent of 1 is the mean over tokens.

    Args:
        normalization: the formula.
        exponent: how much longer outputs are favoured; 0 compares plain log probabilities.
        length: tokens of the output, the end token included; at least 1.
    """
    match normalization:
        case "gnmt":
            return float(((5 + length) / 6) ** exponent)
        case "average":
            return float(length**exponent)
        case _:
            assert_never(normalization)
