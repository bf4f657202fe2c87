"""Pictures: every label whole, apart from its neighbours and large enough; nothing drawn where nothing is visible."""

import itertools
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation, Text

from transformer.attention_maps.fonts import fonts_for
from transformer.attention_maps.maps import AttentionMap
from transformer.attention_maps.pictures import characters_of, overview, pictures, readable_page
from transformer.attention_maps.summary import choose_heads
from transformer.attention_maps.token_texts import Token
from transformer.nn.masks import causal_mask

WORDS = ["<s>", "a", "␣man", "␣in", "␣an", "␣orangefarbenen", "␣Donaudampfschifffahrt", "e\u0301t", "x", "."]


def a_map(kind, queries, keys, *, layers=2, heads=2):
    """Random weights."""
    shape = layers, heads, len(queries), len(keys)
    visible = (
        causal_mask(len(queries), len(keys))[0, 0] if kind == "decoder" else torch.ones(shape[2:], dtype=torch.bool)
    )
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(0)).masked_fill(~visible, -torch.inf)
    tokens = [[Token(number, text, text) for number, text in enumerate(side)] for side in (queries, keys)]
    return AttentionMap(kind, *tokens, scores.softmax(-1), visible)


def words(count):
    return list(itertools.islice(itertools.cycle(WORDS), count))


def all_annotations(figure):
    """What is written beside the maps, and where it is on the page in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return [(each, each.get_window_extent(canvas.get_renderer())) for each in figure.findobj(Annotation)]


def labels(figure, texts):
    """The annotations that say one of the texts."""
    return [(each, box) for each, box in all_annotations(figure) if each.get_text() in texts]


def everything_is_on_the_page(figure):
    width, height = figure.canvas.get_width_height()
    boxes = [text.get_window_extent() for text in figure.findobj(Text) if text.get_text()]
    return all(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height for box in boxes)


@pytest.mark.parametrize(
    ("kind", "num_queries", "num_keys"), [("cross", 60, 35), ("cross", 8, 64), ("decoder", 12, 12), ("encoder", 1, 1)]
)
def test_labels_of_a_page_are_large_enough_and_apart(kind, num_queries, num_keys):
    attention = a_map(kind, words(num_queries), words(num_keys))
    heads = choose_heads(attention, layers=[1])
    figure = readable_page(attention, heads, fonts_for(characters_of(attention)))
    shown = {
        "␣Donauda…fffahrt" if text.startswith("␣Donau") else text for text in (*words(num_queries), *words(num_keys))
    }
    found = labels(figure, shown)
    sides = (num_queries * (2 if num_keys > 30 else 1)) + (num_keys * (2 if num_queries > 30 else 1))
    assert len(found) == sides * len(heads)
    assert all(text.get_fontsize() >= 8 for text, _ in found)
    for (_, one), (_, other) in itertools.pairwise(found):
        assert not one.overlaps(other)
    headings = [box for text, box in all_annotations(figure) if text.get_text().startswith("layer")]
    assert len(headings) == len(heads)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(headings, 2))
    assert everything_is_on_the_page(figure)
    assert figure.get_figwidth() <= 14.0


def test_a_screen_is_filled_from_left_to_right():
    attention = a_map("cross", words(8), words(8), heads=5)
    figure = readable_page(attention, choose_heads(attention, layers=[2], heads=[1, 2, 3, 4, 5]), fonts_for("…"))
    places = [axes.get_position() for axes in figure.axes[1:]]
    assert [round(place.x0, 3) for place in places[:3]] == sorted({round(place.x0, 3) for place in places})
    assert places[0].y0 > places[3].y0
    assert figure.get_figwidth() > figure.get_figheight()


def test_an_overview_has_a_row_for_each_layer_and_labels_at_its_edge_only():
    attention = a_map("cross", words(9), words(7), layers=3)
    figure = overview(attention, choose_heads(attention), fonts_for(characters_of(attention)))
    _, *maps = figure.axes
    corners = {(round(axes.get_position().x0, 3), round(axes.get_position().y0, 3)) for axes in maps}
    assert (len(maps), len({x for x, _ in corners}), len({y for _, y in corners})) == (9, 3, 3)
    found = labels(figure, {"a", "␣man"})
    assert len(found) == 2 * 3 + 2 * 3  # columns of the first row, rows of the first column
    assert everything_is_on_the_page(figure)


def test_an_overview_of_many_tokens_says_what_rows_and_columns_are_instead():
    attention = a_map("cross", words(50), words(50), heads=8)
    figure = overview(attention, choose_heads(attention), fonts_for(characters_of(attention)))
    assert labels(figure, set(WORDS)) == []
    said = " ".join(text.get_text() for text in figure.texts)
    assert "Rows are predicted tokens, from top to bottom; columns are source tokens." in said
    assert everything_is_on_the_page(figure)


def test_what_a_query_may_not_see_is_left_blank():
    attention = a_map("decoder", words(3), words(3), layers=1, heads=1)
    figure = readable_page(attention, choose_heads(attention, heads=[1]), fonts_for("…"))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[::-1, :, :3]  # y from the bottom
    axes = figure.axes[1]
    for query, key in itertools.product(range(3), repeat=2):
        x, y = axes.transData.transform((key - 0.2, query + 0.2)).round().astype(int)
        is_blank = tuple(pixels[y, x]) == (255, 255, 255)
        assert is_blank == (key > query)


def test_darker_is_more_on_one_scale_in_all_pictures():
    weights = torch.tensor([[0.0, 0.2], [0.6, 1.0]])[None, None]
    token = Token(0, "t", "t")
    attention = AttentionMap("cross", [token] * 2, [token] * 2, weights, torch.ones(2, 2, dtype=torch.bool))
    figure = readable_page(attention, choose_heads(attention, heads=[1]), fonts_for("t"))
    [image] = figure.axes[1].get_images()
    assert (image.norm.vmin, image.norm.vmax) == (0, 1)
    lightness = image.to_rgba(image.get_array())[..., :3].mean(-1).flatten()
    assert (np.diff(lightness) < -0.1).all()


def test_characters_without_a_font_are_code_points_and_the_page_says_so(installed):
    attention = a_map("cross", ["a", "b"], ["你", "好吗"])
    figure = readable_page(attention, choose_heads(attention, layers=[1]), fonts_for(characters_of(attention)))
    said = [text.get_text() for text in figure.findobj(Text)]
    assert {"1 U+4F60", "2 U+597DU+5417"} <= set(said)
    assert not {"你", "好", "吗"} & set("".join(said))
    assert "labelled by their place and code points (U+…)" in " ".join(text.get_text() for text in figure.texts)


def test_a_font_that_has_the_characters_is_used(installed, make_font):
    installed(make_font("Tested", "你好吗"))
    attention = a_map("cross", ["a", "b"], ["你", "好吗"])
    figure = readable_page(attention, choose_heads(attention, layers=[1]), fonts_for(characters_of(attention)))
    [(label, _), *_] = labels(figure, {"你"})  # a missing glyph would be a warning, hence an error
    assert label.get_fontfamily() == ["DejaVu Sans", "Tested"]
    assert label.get_rotation() == 0
    assert {each.get_rotation() for each, _ in labels(figure, {"好吗"})} == {90.0}


def test_there_is_an_overview_of_several_layers_and_a_page_of_each(tmp_path):
    attention = a_map("encoder", words(3), words(3), layers=3)
    fonts = fonts_for(characters_of(attention))
    made = dict(pictures(attention, choose_heads(attention, layers=[1, 3]), fonts))
    assert list(made) == ["encoder", "encoder-layer1", "encoder-layer3"]
    assert "Encoder self-attention, layer 3 of 3" in [text.get_text() for text in made["encoder-layer3"].texts]
    assert [name for name, _ in pictures(attention, choose_heads(attention, layers=[2]), fonts)] == ["encoder-layer2"]
    made["encoder"].savefig(tmp_path / "picture.svg", format="svg")
    assert ElementTree.parse(tmp_path / "picture.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_headings_tell_the_entropy():
    weights = torch.tensor([[0.5, 0.5], [1.0, 0.0]])[None, None]
    token = Token(0, "t", "t")
    attention = AttentionMap("cross", [token] * 2, [token] * 2, weights, torch.ones(2, 2, dtype=torch.bool))
    figure = readable_page(attention, choose_heads(attention, heads=[1]), fonts_for("t"))
    assert len(labels(figure, {"layer 1, head 1: entropy 0.35 nats, 50%"})) == 1
    alone = a_map("decoder", ["a"], ["a"])
    figure = readable_page(alone, choose_heads(alone, layers=[1], heads=[None]), fonts_for("a"))
    assert len(labels(figure, {"layer 1, mean: one token has no choice"})) == 1
