"""The numbers of the five steps: the project's own attention, and what is computed beside it."""

import math

import pytest
import torch

from transformer.nn.attention import Attended
from transformer.playground import walk as walk_module
from transformer.playground.matrices import Matrices, Matrix
from transformer.playground.presets import PRESETS
from transformer.playground.walk import Walk, walk


def of_preset(name: str) -> Walk:
    preset = PRESETS[name]
    return walk(preset.matrices, scaled=preset.scaled, causal=preset.causal)


def rounded(matrix: torch.Tensor, decimals: int) -> list[list[float]]:
    return [[round(value, decimals) for value in row] for row in matrix.tolist()]


def random(rows: int, columns: int) -> Matrix:
    return (3 * torch.randn(rows, columns, dtype=torch.float64)).tolist()


def test_A1_two_tokens() -> None:
    walked = of_preset("Two tokens")
    assert rounded(walked.weights_QK, 4) == [[0.6698, 0.3302], [0.3302, 0.6698]]
    assert rounded(walked.output_QU, 3) == [[6.698, 3.302], [3.302, 6.698]]


def test_A2_one_query() -> None:
    walked = of_preset("One query")
    assert rounded(walked.weights_QK, 4) == [[0.6698, 0.3302]]
    assert rounded(walked.output_QU, 4) == [[13.3024]]


def test_A3_six_tokens() -> None:
    walked, hidden = of_preset("Six tokens"), -math.inf
    assert rounded(walked.scaled_QK, 3)[1] == [0.551, 0.863, 0.852, 0.487, 0.408, 0.627]
    assert rounded(walked.masked_QK, 3) == [
        [0.577, hidden, hidden, hidden, hidden, hidden],
        [0.551, 0.863, hidden, hidden, hidden, hidden],
        [0.544, 0.852, 0.841, hidden, hidden, hidden],
        [0.274, 0.487, 0.479, 0.285, hidden, hidden],
        [0.264, 0.408, 0.413, 0.201, 0.384, hidden],
        [0.364, 0.627, 0.612, 0.379, 0.169, 0.546],
    ]
    assert rounded(walked.weights_QK, 3) == [
        [1.0, 0, 0, 0, 0, 0],
        [0.423, 0.577, 0, 0, 0, 0],
        [0.270, 0.367, 0.363, 0, 0, 0],
        [0.223, 0.276, 0.274, 0.226, 0, 0],
        [0.186, 0.215, 0.216, 0.174, 0.210, 0],
        [0.151, 0.197, 0.194, 0.153, 0.124, 0.181],
    ]
    assert rounded(walked.output_QU, 3) == [
        [0.430, 0.150, 0.890],
        [0.499, 0.566, 0.757],
        [0.525, 0.668, 0.715],
        [0.454, 0.638, 0.631],
        [0.521, 0.551, 0.524],
        [0.422, 0.623, 0.551],
    ]


def test_A4_zero_scores() -> None:
    walked = of_preset("Zero scores")
    assert walked.weights_QK.tolist() == [[1, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]
    assert rounded(walked.output_QU, 12) == [[3, 0], [4.5, 1.5], [6, 4]]


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("queries", "keys", "width", "value_width"), [(4, 4, 4, 4), (2, 4, 3, 1), (4, 2, 1, 3)])
def test_steps_lead_to_the_weights_and_output_of_the_attention_function(
    scaled: bool, causal: bool, queries: int, keys: int, width: int, value_width: int
) -> None:
    """Both sides are there on their own: an error in either would part them."""
    torch.manual_seed(queries)
    walked = walk(
        Matrices(random(queries, width), random(keys, width), random(keys, value_width)), scaled=scaled, causal=causal
    )
    assert walked.weights_QK.dtype == torch.float64
    # Exponentials without the largest taken away; nothing is left of a row without a key.
    exponentials = [[math.exp(score) for score in row] for row in walked.masked_QK.tolist()]
    for row, weights, output in zip(exponentials, walked.weights_QK.tolist(), walked.output_QU.tolist(), strict=True):
        shares = [share / sum(row) if sum(row) else 0.0 for share in row]
        assert weights == pytest.approx(shares, abs=1e-12)
        columns = zip(*walked.value_KU.tolist(), strict=True)
        mixed = [sum(share * value for share, value in zip(shares, column, strict=True)) for column in columns]
        assert output == pytest.approx(mixed, abs=1e-12)


def test_weights_and_output_are_those_of_the_attention_function(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def told(*args: torch.Tensor, **settings: object) -> Attended:
        given.append(settings)
        return Attended(torch.full((1, 1, 2, 1), 7.0), torch.full((1, 1, 2, 3), 5.0))

    monkeypatch.setattr(walk_module, "attention", told)
    walked = walk(Matrices([[1], [2]], [[1], [2], [3]], [[1], [2], [3]]), scaled=False, causal=True)
    assert walked.weights_QK.tolist() == [[5.0] * 3] * 2
    assert walked.output_QU.tolist() == [[7.0]] * 2
    assert given == [{"causal": True, "scale": 1.0, "backend": "explicit"}]


def test_causal_means_that_the_last_query_sees_all_keys() -> None:
    walked = of_preset("Cached keys")
    assert walked.visible_QK.tolist() == [[True, True, True, False], [True, True, True, True]]
    assert (walked.weights_QK > 0).tolist() == walked.visible_QK.tolist()


def test_a_query_that_sees_no_key_gets_zeros() -> None:
    walked = of_preset("Nothing to see")
    assert walked.masked_QK[0].tolist() == [-math.inf, -math.inf]
    assert walked.weights_QK.tolist() == [[0, 0], [1, 0], [0.5, 0.5]]
    assert walked.output_QU.tolist() == [[0, 0], [10, 0], [5, 5]]
