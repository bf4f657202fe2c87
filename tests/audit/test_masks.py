"""Masks (B1-B7): what may influence what, measured on outputs, and faulty masks that break each claim."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.attention import Backend, attention
from transformer.nn.layers import TransformerLayer
from transformer.nn.masks import causal_mask, padding_mask

BACKENDS: tuple[Backend, ...] = ("fused", "explicit")
POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "none")
both_backends = pytest.mark.parametrize("backend", BACKENDS)
every_position = pytest.mark.parametrize("position", POSITIONS)
STACK = {"d_model": 16, "num_heads": 2, "max_length": 16}


def language_model(position: str = "rotary", **settings: object) -> DecoderOnly:
    data = {
        "name": "decoder_only",
        "num_layers": 2,
        "init_std": 0.2,
        "position": position,
        **STACK,
        **settings,
    }
    return DecoderOnly(DecoderOnlyConfig.from_plain(data), 11).eval()


def translation_model(position: str = "sinusoidal") -> EncoderDecoder:
    data = {"name": "encoder_decoder", "num_encoder_layers": 2, "num_decoder_layers": 2, "position": position}
    return EncoderDecoder(EncoderDecoderConfig.from_plain({**data, **STACK}), 11, 11).eval()


def self_attend(x_BLD: Tensor, backend: Backend, **settings: object) -> Tensor:
    """The attention function over one sequence, two heads of the raw features."""
    heads = torch.stack(x_BLD.chunk(2, dim=-1), dim=1)
    return attention(heads, heads, heads, backend=backend, **settings).output.transpose(1, 2).flatten(2)  # type: ignore[arg-type]


def leak(run: Callable[[Tensor], Tensor], sequence: Tensor) -> float:
    """The most that changing one position changes any output before it, over every position in turn."""
    output, worst = run(sequence), 0.0
    for position in range(sequence.shape[1]):
        changed = sequence.clone()
        changed[:, position] = (sequence[:, position] + 1) % 11
        difference = (run(changed) - output).abs()
        assert difference[:, position].max() > 1e-6, "the change must be seen at its own position"
        worst = max(worst, difference[:, :position].amax().item() if position else 0.0)
    return worst


@both_backends
def test_b01_causal_function_and_layer(backend: Backend) -> None:
    layer = TransformerLayer(language_model().config, cross_attention=False).eval()
    x = torch.randn(2, 6, 16)
    assert leak(lambda x: self_attend(x, backend, causal=True), x) < 1e-12
    assert leak(lambda x: layer(x, causal=True, backend=backend).hidden_BLD, x) < 1e-12


@both_backends
@every_position
def test_b01_causal_models(position: str, backend: Backend) -> None:
    tokens, source = torch.randint(0, 11, (2, 6)), torch.randint(0, 11, (2, 4))
    model, translation = language_model(position), translation_model(position)
    memory = translation.encode(source).memory_BSD
    assert leak(lambda ids: model.output(model.hidden(ids, backend=backend).hidden_BLD), tokens) < 1e-12
    assert leak(lambda ids: translation.decode(ids, memory, backend=backend).hidden_BTD, tokens) < 1e-12


def test_b01_causal_whole_forward() -> None:
    tokens, source = torch.randint(0, 11, (2, 6)), torch.randint(0, 11, (2, 4))
    translation = translation_model()
    assert leak(language_model(), tokens) < 1e-12
    assert leak(language_model(sliding_window=3), tokens) < 1e-12
    assert leak(lambda ids: translation(source, ids), tokens) < 1e-12


@both_backends
def test_b02_bidirectional_attention_does_leak(backend: Backend) -> None:
    layer = TransformerLayer(language_model().config, cross_attention=False).eval()
    translation = translation_model()
    x = torch.randn(2, 6, 16)
    assert leak(lambda x: self_attend(x, backend), x) > 1e-3
    assert leak(lambda x: layer(x, backend=backend).hidden_BLD, x) > 1e-3
    assert leak(lambda i: translation.encode(i, backend=backend).memory_BSD, torch.randint(0, 11, (2, 6))) > 1e-3


def influences(run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """(outputs, inputs): the largest derivative, by each position's input, of a random mix of each output."""
    x = x.clone().requires_grad_()
    mixed = (run(x) * torch.randn(x.shape)).sum((0, 2))
    rows = [torch.autograd.grad(output, x, retain_graph=True)[0].abs().amax(dim=(0, 2)) for output in mixed]
    return torch.stack(rows)


@both_backends
def test_b03_gradients_respect_causality(backend: Backend) -> None:
    model = language_model()
    tokens = torch.randint(0, 11, (1, 5))
    x = torch.randn(1, 5, 16)

    def from_embeddings(embedded: Tensor) -> Tensor:
        handle = model.embedding.register_forward_hook(lambda *_: embedded)
        output = model.hidden(tokens, backend=backend).hidden_BLD
        handle.remove()
        return output

    lower = torch.ones(5, 5).tril() == 1
    for run in (lambda x: self_attend(x, backend, causal=True), from_embeddings):
        influence = influences(run, x)
        assert influence[~lower].count_nonzero() == 0
        assert influence[lower].min() > 1e-6
    assert influences(lambda x: self_attend(x, backend), x).min() > 1e-6


def padded(ids: Tensor, count: int, left: bool) -> tuple[Tensor, Tensor, slice]:
    """Ids with padding, their mask, and where the real ones are."""
    pads, length = torch.zeros(len(ids), count, dtype=ids.dtype), ids.shape[1]
    tokens = torch.cat([pads, ids] if left else [ids, pads], dim=1)
    real = slice(count, count + length) if left else slice(0, length)
    mask = torch.zeros(tokens.shape, dtype=torch.bool)
    mask[:, real] = True
    return tokens, mask, real


@both_backends
@every_position
@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
def test_b04_padding_changes_no_real_position(position: str, backend: Backend, left: bool) -> None:
    ids, source = torch.randint(1, 11, (2, 4)), torch.randint(1, 11, (2, 5))
    model, translation = language_model(position), translation_model(position)
    hidden = model.hidden(ids, backend=backend).hidden_BLD
    memory = translation.encode(source, backend=backend).memory_BSD
    decoded = translation.decode(ids, memory, backend=backend).hidden_BTD
    for count in range(1, 6):
        tokens, mask, real = padded(ids, count, left)
        sources, source_mask, real_source = padded(source, count, left)
        again = model.hidden(tokens, mask, backend=backend).hidden_BLD[:, real]
        assert (again - hidden).abs().max() < 1e-10
        memory_again = translation.encode(sources, source_mask, backend=backend).memory_BSD
        assert (memory_again[:, real_source] - memory).abs().max() < 1e-10
        decoded_again = translation.decode(tokens, memory_again, source_mask, mask, backend=backend).hidden_BTD
        assert (decoded_again[:, real] - decoded).abs().max() < 1e-10


@both_backends
def test_b04_causal_and_padding_combine_by_and(backend: Backend) -> None:
    zeros, eye = torch.zeros(1, 1, 4, 4), torch.eye(4)[None, None]
    mask = padding_mask(torch.tensor([[True, False, True, True]]))
    weights = attention(zeros, zeros, eye, mask=mask, causal=True, backend=backend).output[0, 0]
    expected = [[1, 0, 0, 0], [1, 0, 0, 0], [1 / 2, 0, 1 / 2, 0], [1 / 3, 0, 1 / 3, 1 / 3]]
    torch.testing.assert_close(weights, torch.tensor(expected), rtol=0, atol=1e-15)
    # Counterexample: OR shows the padding of the past and the whole future.
    faulty = attention(zeros, zeros, eye, mask=mask | causal_mask(4, 4), backend=backend).output[0, 0]
    assert faulty[2, 1] > 0
    assert faulty[0, 3] > 0


def test_b04_counterexample_unmasked_padding() -> None:
    source, translation = torch.randint(1, 11, (2, 5)), translation_model()
    sources, _, real = padded(source, 3, left=False)
    assert (translation.encode(sources).memory_BSD[:, real] - translation.encode(source).memory_BSD).abs().max() > 1e-3


on_devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
LOW_AND_HIGH = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@both_backends
@on_devices
@pytest.mark.parametrize("dtype", LOW_AND_HIGH)
@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
def test_b05_fully_masked_row(backend: Backend, dtype: torch.dtype, biased: bool, device: str) -> None:
    inputs = [torch.randn(2, 2, 4, 8, dtype=dtype, device=device, requires_grad=True) for _ in range(3)]
    mask = torch.ones(2, 1, 4, 4, dtype=torch.bool, device=device)
    mask[0, 0, 1] = False
    mask[1, 0, 3, :2] = False
    bias = torch.randn(1, 2, 4, 4, dtype=dtype, device=device) if biased else None
    output = attention(*inputs, mask=mask, bias=bias, backend=backend).output
    assert output[0, :, 1].count_nonzero() == 0
    rows = [0, 2, 3]
    others_bias = None if bias is None else bias[:, :, rows]
    others = attention(
        inputs[0][:1, :, rows],
        inputs[1][:1],
        inputs[2][:1],
        mask=mask[:1, :, rows],
        bias=others_bias,
        backend=backend,
    )
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(output[:1, :, rows], others.output, rtol=tolerance, atol=tolerance)
    gradients = torch.autograd.grad(output.float().square().sum(), inputs)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert gradients[0][0, :, 1].count_nonzero() == 0
    assert gradients[0][0, :, 0].count_nonzero() > 0


@both_backends
@on_devices
@pytest.mark.parametrize("dtype", LOW_AND_HIGH)
@pytest.mark.parametrize("causal", [True, False])
def test_b05_left_padding_and_empty_rows(backend: Backend, dtype: torch.dtype, causal: bool, device: str) -> None:
    inputs = [torch.randn(3, 2, 4, 8, dtype=dtype, device=device, requires_grad=True) for _ in range(3)]
    real = torch.tensor([[False, False, True, True], [True] * 4, [False] * 4], device=device)
    output = attention(*inputs, mask=padding_mask(real), causal=causal, backend=backend).output
    assert output[2].count_nonzero() == 0
    assert (output[0, :, :2].count_nonzero() == 0) == causal
    assert output[1].count_nonzero() > 0
    gradients = torch.autograd.grad(output.float().square().sum(), inputs)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert all(gradient[2].count_nonzero() == 0 for gradient in gradients)


@pytest.mark.parametrize("dtype", LOW_AND_HIGH)
@pytest.mark.parametrize("position", ["rotary", "alibi"])
def test_b05_left_padded_model_trains(dtype: torch.dtype, position: str) -> None:
    model = language_model(position).to(dtype)
    tokens, mask, real = padded(torch.randint(1, 11, (2, 3)), 2, left=True)
    mask[0] = False  # a whole example of padding
    model(tokens, mask)[:, real].float().logsumexp(-1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_b05_counterexample_minus_infinity() -> None:
    x = torch.randn(4, 8, requires_grad=True)
    allowed = torch.ones(4, 4, dtype=torch.bool)
    allowed[1] = False
    output = (x @ x.T).masked_fill(~allowed, -math.inf).softmax(-1) @ x
    assert output[1].isnan().all()
    (gradient,) = torch.autograd.grad(output[[0, 2, 3]].sum(), x)  # even where the bad row is not in the loss
    assert gradient.isnan().any()


@both_backends
def test_b06_causal_with_cached_keys(backend: Backend) -> None:
    weights = attention(
        torch.zeros(1, 1, 2, 4),
        torch.zeros(1, 1, 5, 4),
        torch.eye(5)[None, None],
        causal=True,
        backend=backend,
    ).output[0, 0]
    expected = torch.tensor([[1 / 4, 1 / 4, 1 / 4, 1 / 4, 0], [1 / 5] * 5])
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-15)
    one = attention(
        torch.zeros(1, 1, 1, 4),
        torch.zeros(1, 1, 5, 4),
        torch.eye(5)[None, None],
        causal=True,
        backend=backend,
    )
    torch.testing.assert_close(one.output[0, 0], torch.tensor([[1 / 5] * 5]), rtol=0, atol=1e-15)


def test_b06_counterexample_top_left_alignment() -> None:
    faulty = torch.ones(2, 5, dtype=torch.bool).tril()
    assert faulty.sum(-1).tolist() == [1, 2]  # the newest query is blind to the three newest keys
    assert causal_mask(2, 5)[0, 0].sum(-1).tolist() == [4, 5]
    assert torch.equal(causal_mask(3, 3)[0, 0], torch.ones(3, 3, dtype=torch.bool).tril())


@both_backends
@pytest.mark.parametrize("shape", [(2, 1, 1, 5), (2, 1, 3, 5), (1, 1, 3, 5), (1, 1, 1, 5)])
def test_b07_masks_broadcast(backend: Backend, shape: tuple[int, ...]) -> None:
    query, key = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 5, 8)
    mask = torch.rand(shape) < 0.5
    mask[..., 0] = True
    output = attention(query, key, key, mask=mask, backend=backend).output
    scores = (query @ key.mT / math.sqrt(8)).masked_fill(~mask.expand(2, 4, 3, 5), -math.inf)
    torch.testing.assert_close(output, scores.softmax(-1) @ key, rtol=0, atol=1e-12)


@both_backends
@pytest.mark.parametrize("shape", [(2, 5), (3, 5), (2, 3, 5), (2, 4, 3, 5), (2, 1, 5, 3), (2, 1, 3, 1), (3, 1, 1, 5)])
def test_b07_other_masks_are_refused(backend: Backend, shape: tuple[int, ...]) -> None:
    query, key = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 5, 8)
    with pytest.raises(ValueError, match=r"\(2, 1, 1, 5\) or \(2, 1, 3, 5\).*but has \(") as caught:
        attention(query, key, key, mask=torch.ones(shape, dtype=torch.bool), backend=backend)
    assert str(shape) in str(caught.value)


@both_backends
def test_b07_masks_of_numbers_are_refused(backend: Backend) -> None:
    query = torch.randn(2, 4, 3, 8)
    with pytest.raises(ValueError, match=r"must be bool.*torch\.float64"):
        attention(query, query, query, mask=torch.zeros(2, 1, 1, 3), backend=backend)
