"""Models in bf16 and int8."""

import copy

import pytest
import torch
from torch import nn

from transformer.inference import precision
from transformer.inference.precision import model_bytes, set_precision
from transformer.nn.int8_linear import FloatOutput, Int8Linear, input_levels

needs_int8 = pytest.mark.skipif(input_levels() is None, reason="no exact int8 products here")
SOURCE = torch.tensor([[4, 7, 9, 12, 2], [5, 5, 8, 2, 0]])
MASK = torch.tensor([[True] * 5, [True] * 4 + [False]])
TARGET = torch.tensor([[1, 6, 10], [1, 11, 30]])
SIZES = {"d_model": 32, "d_ff": 64}


def answers(model, rows=slice(None)):
    with torch.inference_mode():
        return model(SOURCE[rows], TARGET[rows], MASK[rows])


def weights(model):
    return {name: parameter.clone() for name, parameter in model.named_parameters()}


@pytest.fixture(params=["all", "decoder", "none"])
def model(request, tiny_bundle):
    return tiny_bundle("encoder_decoder", tie_embeddings=request.param, **SIZES).model


def as_bf16(model, monkeypatch):
    monkeypatch.setattr(precision, "computes_bf16", lambda device: True)
    return set_precision(model, "bf16")


def test_float32_is_the_model_itself(model):
    assert set_precision(model, "float32", "cpu") is model


@needs_int8
def test_int8_leaves_the_model_as_it_is(model):
    before, expected = weights(model), answers(model)
    converted = set_precision(model, "int8", min_weights=0)
    answers(converted)
    assert weights(model).keys() == before.keys()
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    assert torch.equal(answers(model), expected)
    assert isinstance(model.output, nn.Linear)


@needs_int8
def test_int8_converts_every_linear_layer_and_shares_the_rest(model):
    converted = set_precision(model, "int8", min_weights=0)
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    assert "output" in linear
    assert len(linear) == (2 + 2) + (2 + 3 + 2) + 1  # encoder, decoder with cross-attention, output
    assert all(isinstance(converted.get_submodule(name), Int8Linear) for name in linear)
    assert [name for name, module in converted.named_modules() if isinstance(module, nn.Linear)] == []
    assert converted.target_embedding.weight is model.target_embedding.weight
    assert converted.source_embedding.weight is model.source_embedding.weight
    assert not converted.training


@needs_int8
def test_int8_answers_are_close(model):
    expected = answers(model)
    got = answers(set_precision(model, "int8", min_weights=0))
    assert got.dtype == torch.float32
    error = (got - expected).norm() / expected.norm()
    assert 1e-5 < error < 0.05


@needs_int8
def test_int8_answers_do_not_depend_on_the_batch(model):
    converted = set_precision(model, "int8", min_weights=0)
    together = answers(converted)
    torch.testing.assert_close(answers(converted, slice(0, 1))[0], together[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(answers(converted, slice(1, 2))[0], together[1], rtol=1e-5, atol=1e-5)


@needs_int8
def test_small_matrices_stay_float32_in_int8(model):
    converted = set_precision(model, "int8", min_weights=32 * 64)
    kinds = {name: type(module) for name, module in converted.named_modules() if name.endswith((".inner", ".output"))}
    assert kinds["decoder_layers.0.feed_forward.inner"] is Int8Linear
    assert kinds["decoder_layers.0.self_attention.output"] is nn.Linear
    assert torch.equal(answers(set_precision(model, "int8")), answers(model))  # by default all of so small a model


@needs_int8
def test_int8_is_smaller(tiny_bundle):
    model = tiny_bundle("encoder_decoder", d_model=64, d_ff=256, tie_embeddings="none").model
    converted = set_precision(model, "int8", min_weights=0)
    linear = sum(m.weight.nbytes for m in model.modules() if isinstance(m, nn.Linear))
    assert model_bytes(model) - model_bytes(converted) > 0.7 * linear


def test_model_bytes_counts_tied_weights_once(tiny_bundle):
    model = tiny_bundle("encoder_decoder", tie_embeddings="all").model
    buffers = sum(buffer.nbytes for buffer in model.buffers())
    assert model_bytes(model) == 4 * sum(parameter.numel() for parameter in model.parameters()) + buffers


@needs_int8
def test_language_models_convert_too(tiny_bundle):
    model = tiny_bundle("decoder_only", position="rotary", qk_norm=True).model
    with torch.inference_mode():
        expected = model(TARGET)
        got = set_precision(model, "int8", min_weights=0)(TARGET)
    assert 1e-5 < (got - expected).norm() / expected.norm() < 0.05


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_int8_elsewhere_than_on_the_cpu_is_refused(model, name):
    message = f"^int8 runs on the CPU only, but the device is {name}; use bf16 or float32.$"
    with pytest.raises(ValueError, match=message):
        set_precision(model, "int8", name)


def test_int8_without_exact_products_is_refused(model, monkeypatch):
    monkeypatch.setattr(precision, "input_levels", lambda: None)
    with pytest.raises(
        ValueError, match=r"^this processor \(.+\) has no exact int8 arithmetic in torch; use float32.$"
    ):
        set_precision(model, "int8")


def test_bf16_without_the_arithmetic_is_refused(model, monkeypatch):
    monkeypatch.setattr(precision, "computes_bf16", lambda device: False)
    with pytest.raises(ValueError, match=r"^this processor \(.+\) has no bf16 arithmetic; use float32 or int8.$"):
        set_precision(model, "bf16")
    with pytest.raises(ValueError, match=r"^this GPU has no bf16 arithmetic; use float32.$"):
        set_precision(model, "bf16", "cuda")


def test_bf16_copies_and_keeps_ties(model, monkeypatch):
    before, expected, tied = weights(model), answers(model), model.config.tie_embeddings
    converted = as_bf16(model, monkeypatch)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    assert torch.equal(answers(model), expected)
    assert {parameter.dtype for parameter in converted.parameters()} == {torch.bfloat16}
    assert isinstance(converted.output, FloatOutput)
    assert (converted.output.weight is converted.target_embedding.weight) == (tied != "none")
    assert (converted.source_embedding.weight is converted.target_embedding.weight) == (tied == "all")
    assert len(list(converted.parameters())) == len(list(model.parameters()))


@pytest.mark.parametrize(
    "settings",
    [{}, {"position": "rotary", "qk_norm": True}, {"position": "alibi"}, {"norm": "rms_norm", "bias": False}],
)
def test_bf16_answers_are_close_and_float32(tiny_bundle, monkeypatch, settings):
    model = tiny_bundle("encoder_decoder", **SIZES, **settings).model
    expected = answers(model)
    got = answers(as_bf16(model, monkeypatch))
    assert got.dtype == torch.float32
    assert 1e-4 < (got - expected).norm() / expected.norm() < 0.05


def test_bf16_keeps_tables_of_positions_exact(tiny_bundle, monkeypatch):
    model = tiny_bundle("decoder_only", position="rotary").model
    converted = as_bf16(model, monkeypatch)
    assert torch.equal(converted.position.cos_LE, model.position.cos_LE)


@needs_int8
def test_converted_models_can_be_copied_and_stay_equal(model):
    converted = set_precision(model, "int8", min_weights=0)
    assert torch.equal(answers(copy.deepcopy(converted)), answers(converted))
