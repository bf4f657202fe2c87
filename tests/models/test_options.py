"""Options of the layers that change what a model computes or how it begins."""

import math

import pytest
import torch
from torch import Tensor, nn

from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.feedforward import FeedForward
from transformer.nn.layers import LayerDrop, TransformerLayer

VOCAB = 13
TOKENS = torch.randint(VOCAB, (3, 6), generator=torch.Generator().manual_seed(0))


def language_model(**changes) -> DecoderOnly:
    torch.manual_seed(0)
    sizes = {"num_layers": 3, "d_model": 16, "num_heads": 2, "max_length": 8, "dropout": 0.0}
    return DecoderOnly(DecoderOnlyConfig(name="decoder_only", **sizes | changes), VOCAB)


def translation_model(**changes) -> EncoderDecoder:
    torch.manual_seed(0)
    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 3, "d_model": 16, "num_heads": 2, "max_length": 8}
    config = EncoderDecoderConfig(name="encoder_decoder", **sizes | {"dropout": 0.0} | changes)
    return EncoderDecoder(config, VOCAB, VOCAB)


def logits(model: nn.Module) -> Tensor:
    return model(TOKENS) if isinstance(model, DecoderOnly) else model(TOKENS, TOKENS.flip(1))


def test_squared_relu():
    torch.manual_seed(0)
    network = FeedForward(4, 6, "relu_squared", bias=True, dropout=0.0)
    x = torch.randn(2, 3, 4)
    inner = x @ network.inner.weight.T + network.inner.bias
    expected = torch.where(inner > 0, inner * inner, 0) @ network.outer.weight.T + network.outer.bias
    torch.testing.assert_close(network(x), expected)


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_embedding_norm_normalises_the_sum_of_token_and_position(norm):
    model = language_model(embedding_norm=True, norm=norm, position="learned").eval()
    seen = []
    model.layers[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(TOKENS)
    x = model.embedding.weight[TOKENS] + model.position.embedding.weight[:6]
    centred = x - x.mean(-1, keepdim=True) if norm == "layer_norm" else x
    expected = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(seen[0], expected)


def test_both_sides_of_a_translation_model_have_their_embedding_norm():
    model = translation_model(embedding_norm=True).eval()
    seen = []
    for layers in (model.encoder_layers, model.decoder_layers):
        layers[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    logits(model)
    assert len(seen) == 2
    for x_BLD in seen:
        torch.testing.assert_close(x_BLD.mean(-1), torch.zeros(3, 6), atol=1e-6, rtol=0)
        torch.testing.assert_close(x_BLD.var(-1, correction=0), torch.ones(3, 6), atol=1e-3, rtol=0)


@pytest.mark.parametrize("build", [language_model, translation_model])
def test_embedding_dropout_has_its_own_rate(build):
    torch.manual_seed(1)
    model = build(embedding_dropout=0.5).train()
    first = model.layers[0] if isinstance(model, DecoderOnly) else model.encoder_layers[0]
    seen = []
    first.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    logits(model)
    share = (seen[0] == 0).double().mean().item()
    assert abs(share - 0.5) < 4.5 * math.sqrt(0.25 / seen[0].numel())
    assert model.dropout.p == 0.5
    assert all(residual.p == 0.0 for name, residual in model.named_modules() if name.endswith("residual.dropout"))
    assert build(dropout=0.3).dropout.p == 0.3  # its default


@pytest.mark.parametrize("build", [language_model, translation_model])
def test_zero_outputs_make_every_layer_the_identity(build):
    model = build(zero_outputs=True, tie_embeddings=False if build is language_model else "none").eval()
    assert torch.equal(logits(model), torch.zeros(3, 6, VOCAB))
    for module in model.modules():
        if isinstance(module, TransformerLayer):
            x_BLD = torch.randn(2, 4, 16)
            memory = {} if module.cross_attention is None else {"memory_BSD": torch.randn(2, 5, 16)}
            assert torch.equal(module(x_BLD, causal=True, **memory).hidden_BLD, x_BLD)
    tied = build(zero_outputs=True).eval()
    assert logits(tied).abs().max() > 0.01  # an embedding is not zero


def test_layers_are_skipped_at_the_rate_in_training_only():
    torch.manual_seed(0)
    drop, count = LayerDrop(0.3), 4000
    skipped = sum(drop() for _ in range(count))
    assert abs(skipped - 0.3 * count) < 4.5 * math.sqrt(0.3 * 0.7 * count)
    assert not any(drop.eval()() for _ in range(100))
    state = torch.get_rng_state()
    assert not LayerDrop(0.0)()
    assert torch.equal(torch.get_rng_state(), state)  # without LayerDrop nothing is drawn


@pytest.mark.parametrize("build", [language_model, translation_model])
def test_a_skipped_layer_is_the_identity_and_gets_no_gradient(build):
    model = build(layer_dropout=0.5).train()
    layers = [module for module in model.modules() if isinstance(module, TransformerLayer)]
    ran: list[nn.Module] = []
    for layer in layers:
        layer.register_forward_hook(lambda module, inputs, output: ran.append(module))
    counts = []
    for seed in range(12):
        torch.manual_seed(seed)
        ran.clear()
        model.zero_grad()
        logits(model).square().sum().backward()
        counts.append(len(ran))
        for layer in layers:
            has_gradient = [parameter.grad is not None for parameter in layer.parameters()]
            # What no decoder layer has read gets none either.
            is_read = build is language_model or any(one.cross_attention is not None for one in [layer, *ran])
            assert has_gradient == [layer in ran and is_read] * len(has_gradient)
    assert min(counts) < max(counts)
    ran.clear()
    logits(model.eval())
    assert len(ran) == len(layers)


def test_a_model_whose_layers_are_all_skipped_still_learns_its_embeddings():
    model = language_model(layer_dropout=0.999).train()
    torch.manual_seed(0)
    logits(model).square().sum().backward()
    assert model.embedding.weight.grad is not None
