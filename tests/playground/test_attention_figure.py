"""The map of attention weights."""

import re

import pytest
import torch

from transformer.attention_maps.maps import AttentionMap, Kind
from transformer.attention_maps.token_texts import Token
from transformer.playground.attention_figure import figure, shown_part


def tokens(*texts: str) -> list[Token]:
    return [Token(number, text, text) for number, text in enumerate(texts)]


def two_by_two(kind: Kind = "cross", visible: list[list[bool]] | None = None) -> AttentionMap:
    """Two layers of two heads."""
    weights_LHQK = torch.tensor(
        [
            [[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.6, 0.4]]],
            [[[0.3, 0.7], [1.0, 0.0]], [[0.1, 0.9], [0.0, 1.0]]],
        ]
    )
    seen = torch.tensor([[True, True], [True, True]] if visible is None else visible)
    return AttentionMap(kind, tokens("Hund", "</s>"), tokens("<b>dog", "ein"), weights_LHQK, seen)


def told(html: str) -> list[str]:
    return re.findall(r"<title>(.*?)</title>", html)


@pytest.mark.parametrize(
    ("layer", "head", "weights"),
    [
        (1, 1, ["0.9000", "0.1000", "0.2000", "0.8000"]),
        (2, 1, ["0.3000", "0.7000", "1.0000", "0.0000"]),
        (1, 2, ["0.5000", "0.5000", "0.6000", "0.4000"]),
        (1, None, ["0.7000", "0.3000", "0.4000", "0.6000"]),
        (None, 2, ["0.3000", "0.7000", "0.3000", "0.7000"]),
        (None, None, ["0.4500", "0.5500", "0.4500", "0.5500"]),
    ],
)
def test_each_cell_tells_its_weight(layer: int | None, head: int | None, weights: list[str]) -> None:
    pairs = [
        "Hund looks at &lt;b&gt;dog",
        "Hund looks at ein",
        "&lt;/s&gt; looks at &lt;b&gt;dog",
        "&lt;/s&gt; looks at ein",
    ]
    cells = told(figure(two_by_two(), layer, head))
    assert cells == [f"{pair}: {weight}" for pair, weight in zip(pairs, weights, strict=True)]


def test_cells_are_as_dark_as_their_weight_and_below_their_column() -> None:
    html = figure(two_by_two(), 1, 1)
    cells = re.findall(r'<rect x="(\d+)" y="(\d+)" fill-opacity="([\d.]+)">', html)
    assert [opacity for _, _, opacity in cells] == ["0.900", "0.100", "0.200", "0.800"]
    assert [x for x, _, _ in cells[:2]] == [x for x, _, _ in cells[2:]]
    assert len({y for _, y, _ in cells}) == 2


def test_cells_that_may_not_be_seen_are_left_blank() -> None:
    html = figure(two_by_two("decoder", [[True, False], [True, True]]), 1, 1)
    assert len(told(html)) == 3
    assert "Hund looks at ein" not in html


@pytest.mark.parametrize(("kind", "first", "last"), [("cross", "t0", "t79"), ("decoder", "t20", "t99")])
def test_a_long_map_is_cut_and_says_so(kind: Kind, first: str, last: str) -> None:
    names = tokens(*(f"t{number}" for number in range(100)))
    weights_LHQK = torch.full((1, 1, 100, 100), 0.01)
    weights_LHQK[0, 0, 79, 79] = weights_LHQK[0, 0, 99, 99] = 0.5
    cells = told(figure(AttentionMap(kind, names, names, weights_LHQK, torch.ones(100, 100, dtype=torch.bool)), 1, 1))
    assert len(cells) == 80 * 80
    assert cells[0] == f"{first} looks at {first}: 0.0100"
    assert cells[-1] == f"{last} looks at {last}: 0.5000"
    side = "the last" if kind == "decoder" else "the first"
    whole = AttentionMap(kind, names, names, weights_LHQK, torch.ones(100, 100, dtype=torch.bool))
    html = figure(whole, 1, 1)
    kept = shown_part(whole)
    assert kept.weights_LHQK.shape[2:] == kept.visible_QK.shape == (80, 80)
    assert kept.weights_LHQK.untyped_storage().nbytes() < whole.weights_LHQK.untyped_storage().nbytes()
    assert figure(kept, 1, 1) == html
    assert f"The map shows {side} 80 tokens of each side; there are 100 rows and 100 columns." in html
    assert "80 tokens" not in figure(two_by_two(kind), 1, 1)


def test_names_fit_beside_the_map_whatever_the_script() -> None:
    """Squares of Chinese need more room than as many Latin letters; combining marks need none."""
    widths = {}
    for text in ("abcd", "春眠不覺", "a\u0301b\u0301c\u0301d\u0301"):
        attention = AttentionMap("cross", tokens(text), tokens("x"), torch.ones(1, 1, 1, 1), torch.tensor([[True]]))
        [width] = re.findall(r'<svg class="names" width="(\d+)"', figure(attention, 1, 1))
        widths[text] = int(width)
    latin, chinese, accented = widths.values()
    assert chinese >= 4 * 13 + 7 > latin == accented
