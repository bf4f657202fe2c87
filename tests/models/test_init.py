"""Initial weights and parameter counts."""

import math

import pytest
import torch
from torch import nn

from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.init import count_parameters

VOCAB = 300


def _language_model(**changes) -> DecoderOnly:
    torch.manual_seed(0)
    settings = {"num_layers": 3, "d_model": 96, "num_heads": 4, "max_length": 64, "position": "learned"} | changes
    return DecoderOnly(DecoderOnlyConfig(name="decoder_only", **settings), VOCAB)


def _translation_model(**changes) -> EncoderDecoder:
    torch.manual_seed(0)
    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 3, "d_model": 96, "num_heads": 4, "max_length": 64}
    return EncoderDecoder(EncoderDecoderConfig(name="encoder_decoder", **sizes | changes), VOCAB, VOCAB)


def _assert_normal(weight: torch.Tensor, std: float) -> None:
    """Standard deviation within five standard errors, mean as well."""
    assert weight.std().item() == pytest.approx(std, rel=5 / math.sqrt(2 * weight.numel()))
    assert abs(weight.mean().item()) < 5 * std / math.sqrt(weight.numel())


def _assert_xavier(weight: torch.Tensor) -> None:
    """Uniform up to sqrt(6 / (inputs + outputs))."""
    bound = math.sqrt(6 / sum(weight.shape))
    assert bound * 0.995 < weight.abs().max().item() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)


@pytest.mark.parametrize("std", [None, 0.05])
def test_normal_scales_what_writes_into_the_residual_stream(std):
    model = _language_model(init_std=std, tie_embeddings=False)
    std = 0.02 if std is None else std
    _assert_normal(model.embedding.weight, std)
    _assert_normal(model.position.embedding.weight, std)
    _assert_normal(model.output.weight, std)
    for layer in model.layers:
        _assert_normal(layer.self_attention.query_key_value.weight, std)
        _assert_normal(layer.feed_forward.inner.weight, std)
        _assert_normal(layer.self_attention.output.weight, std / math.sqrt(6))  # 3 layers of 2 residuals
        _assert_normal(layer.feed_forward.outer.weight, std / math.sqrt(6))


def test_normal_in_an_encoder_decoder_counts_the_residuals_of_both_sides():
    model = _translation_model(initialization="normal")
    for attention in (model.decoder_layers[0].cross_attention, model.encoder_layers[1].self_attention):
        _assert_normal(attention.output.weight, 0.02 / math.sqrt(2 * 2 + 3 * 3))


def test_xavier_treats_each_part_of_a_fused_projection_as_if_it_stood_alone():
    model = _translation_model(num_kv_heads=2, activation="swiglu", d_ff=160, tie_embeddings="none")
    layer = model.decoder_layers[2]
    query, key, value = layer.self_attention.query_key_value.weight.split([96, 48, 48])
    memory_key, memory_value = layer.cross_attention.key_value.weight.chunk(2)
    gate, up = layer.feed_forward.inner.weight.chunk(2)
    for part in (query, key, value, memory_key, memory_value, gate, up):
        _assert_xavier(part)
    for linear in (layer.cross_attention.query, layer.cross_attention.output, layer.feed_forward.outer, model.output):
        _assert_xavier(linear.weight)
    for embedding in (model.source_embedding, model.target_embedding):
        _assert_normal(embedding.weight, 96**-0.5)


def test_scaled_embeddings_start_with_unit_variance():
    model = _translation_model()
    embedded = model.source_embedding(torch.arange(VOCAB)[None])
    assert embedded.std().item() == pytest.approx(1, rel=0.03)


@pytest.mark.parametrize("model", [_language_model(), _translation_model()])
def test_biases_are_zero_and_norms_are_the_identity(model):
    biases = [m.bias for m in model.modules() if isinstance(m, nn.Linear | nn.LayerNorm) and m.bias is not None]
    gains = [m.weight for m in model.modules() if isinstance(m, nn.LayerNorm)]
    assert len(gains) >= 7
    assert all(bias.abs().max() == 0 for bias in biases)
    assert all((gain == 1).all() for gain in gains)


def test_the_same_seed_gives_the_same_weights():
    first, second = _language_model(), _language_model()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_an_untrained_model_predicts_almost_uniformly():
    model = _language_model(dropout=0.0)
    log_probabilities = model(torch.randint(VOCAB, (4, 32))).log_softmax(-1)
    assert log_probabilities.mean().item() == pytest.approx(-math.log(VOCAB), abs=0.1)


def test_tied_weights_count_once_and_embeddings_on_request():
    # One layer: 4 * 96^2 attention, 8 * 96^2 feed-forward, their biases 4 * 96 + 5 * 96, two norms 4 * 96.
    layer = 12 * 96**2 + 13 * 96
    body = 3 * layer + 2 * 96
    tied, untied = _language_model(), _language_model(tie_embeddings=False)
    assert count_parameters(tied) == body + VOCAB * 96 + 64 * 96
    assert count_parameters(untied) == body + 2 * VOCAB * 96 + 64 * 96
    assert count_parameters(tied, embeddings=False) == body
    assert count_parameters(untied, embeddings=False) == body + VOCAB * 96
    storages = {p.data_ptr(): p.numel() for p in tied.parameters()}
    assert count_parameters(tied) == sum(storages.values())


@pytest.mark.parametrize(("tie", "matrices"), [("all", 1), ("decoder", 2), ("none", 3)])
def test_an_encoder_decoder_counts_one_two_or_three_vocabulary_matrices(tie, matrices):
    encoder_layer = 12 * 96**2 + 13 * 96
    decoder_layer = encoder_layer + 4 * 96**2 + 6 * 96  # cross-attention and its norm
    body = 2 * encoder_layer + 3 * decoder_layer + 2 * 2 * 96
    assert count_parameters(_translation_model(tie_embeddings=tie)) == body + matrices * VOCAB * 96
