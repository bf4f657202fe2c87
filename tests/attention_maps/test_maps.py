"""Attention maps hold the weights that the model really uses, with the right tokens beside them."""

import pytest
import torch

from transformer.attention_maps.maps import text_maps, translation_maps
from transformer.attention_maps.token_texts import Token
from transformer.nn.multihead import CrossAttention, split_heads


def tokens(*ids):
    return [Token(index, f"piece{index}", f"text{index}") for index in ids]


SOURCE, TARGET = tokens(5, 6, 7, 8, 2), tokens(1, 9, 10, 6, 2)


class FusedParts:
    """The values that an attention mixes, and what comes out of it before its last projection, in a fused pass."""

    def __init__(self, attention):
        heads, kv_heads = attention.num_heads, attention.num_kv_heads
        values_width = kv_heads * attention.output.in_features // heads
        projection = attention.key_value if isinstance(attention, CrossAttention) else attention.query_key_value

        def keep_values(module, inputs, output):
            values_GKU = split_heads(output[..., -values_width:], kv_heads)[0]
            self.values_HKU = values_GKU.repeat_interleave(heads // kv_heads, dim=0)

        def keep_output(module, inputs):
            self.output_HQU = split_heads(inputs[0], heads)[0]

        projection.register_forward_hook(keep_values)
        attention.output.register_forward_pre_hook(keep_output)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_heads": 4, "num_kv_heads": 2, "position": "rotary"},
        {"position": "alibi", "norm_position": "post"},
        {"qk_norm": True, "norm": "rms_norm"},
    ],
)
def test_weights_times_values_are_the_output_of_the_fused_attention(tiny_bundle, settings):
    model = tiny_bundle("encoder_decoder", num_encoder_layers=2, num_decoder_layers=3, **settings).model
    maps = {each.kind: each for each in translation_maps(model, SOURCE, TARGET)}
    parts = {
        "encoder": [FusedParts(layer.self_attention) for layer in model.encoder_layers],
        "decoder": [FusedParts(layer.self_attention) for layer in model.decoder_layers],
        "cross": [FusedParts(layer.cross_attention) for layer in model.decoder_layers],
    }
    with torch.inference_mode():
        model(torch.tensor([[each.id for each in SOURCE]]), torch.tensor([[each.id for each in TARGET[:-1]]]))
    for kind, layers in parts.items():
        assert maps[kind].num_layers == len(layers)
        for weights_HQK, part in zip(maps[kind].weights_LHQK, layers, strict=True):
            torch.testing.assert_close(weights_HQK @ part.values_HKU, part.output_HQU, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "settings", [{"position": "rotary"}, {"sliding_window": 2}, {"num_heads": 4, "num_kv_heads": 1}]
)
def test_weights_of_a_language_model_times_values_are_its_attention(tiny_bundle, settings):
    model = tiny_bundle("decoder_only", num_layers=2, **settings).model
    [found] = text_maps(model, SOURCE)
    parts = [FusedParts(layer.self_attention) for layer in model.layers]
    with torch.inference_mode():
        model(torch.tensor([[each.id for each in SOURCE]]))
    for weights_HQK, part in zip(found.weights_LHQK, parts, strict=True):
        torch.testing.assert_close(weights_HQK @ part.values_HKU, part.output_HQU, atol=1e-6, rtol=1e-5)


def test_rows_of_cross_attention_are_the_predicted_tokens_and_those_of_self_attention_the_read_ones(tiny_bundle):
    model = tiny_bundle("encoder_decoder", num_encoder_layers=2, num_decoder_layers=3).model
    encoder, decoder, cross = translation_maps(model, SOURCE, TARGET)
    assert [encoder.kind, decoder.kind, cross.kind] == ["encoder", "decoder", "cross"]
    assert encoder.query_tokens == encoder.key_tokens == cross.key_tokens == SOURCE
    assert decoder.query_tokens == decoder.key_tokens == TARGET[:4]
    assert cross.query_tokens == TARGET[1:]
    assert [tuple(each.weights_LHQK.shape) for each in (encoder, decoder, cross)] == [
        (2, 2, 5, 5),
        (3, 2, 4, 4),
        (3, 2, 4, 5),
    ]
    assert (cross.num_layers, cross.num_heads) == (3, 2)


def test_rows_add_up_to_one_and_nothing_invisible_has_weight(tiny_bundle):
    model = tiny_bundle("encoder_decoder").model
    for each in translation_maps(model, SOURCE, TARGET):
        torch.testing.assert_close(each.weights_LHQK.sum(-1), torch.ones(each.weights_LHQK.shape[:3]))
        assert bool((each.weights_LHQK > 0).eq(each.visible_QK).all())


@pytest.mark.parametrize(
    ("settings", "visible"),
    [
        ({}, ["x....", "xx...", "xxx..", "xxxx.", "xxxxx"]),
        ({"sliding_window": 2}, ["x....", "xx...", ".xx..", "..xx.", "...xx"]),
    ],
)
def test_a_language_model_sees_what_came_before(tiny_bundle, settings, visible):
    [found] = text_maps(tiny_bundle("decoder_only", **settings).model, SOURCE)
    assert found.visible_QK.tolist() == [[mark == "x" for mark in row] for row in visible]
    assert bool((found.weights_LHQK > 0).eq(found.visible_QK).all())
    assert (found.kind, found.query_tokens, found.key_tokens) == ("decoder", SOURCE, SOURCE)


def test_maps_are_float32_on_the_cpu_for_a_model_in_another_precision(tiny_bundle):
    model = tiny_bundle("decoder_only").model
    [single] = text_maps(model, SOURCE)
    [double] = text_maps(model.double(), SOURCE)
    assert double.weights_LHQK.dtype == torch.float32
    torch.testing.assert_close(double.weights_LHQK, single.weights_LHQK)
