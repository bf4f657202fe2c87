"""`EncoderDecoder` against stacks of torch's own Transformer layers with the same weights."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.models.config import EncoderDecoderConfig
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.layers import TransformerLayer
from transformer.nn.multihead import CrossAttention, SelfAttention

D_MODEL, HEADS, D_FF, SOURCE_VOCAB, TARGET_VOCAB = 12, 3, 20, 17, 13
SETTINGS = pytest.mark.parametrize(
    ("norm_position", "activation"), [("pre", "relu"), ("pre", "gelu"), ("post", "relu"), ("post", "gelu")]
)
PRECISIONS = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])


@pytest.fixture
def _default_dtype(dtype):
    """Position tables are made in the default precision."""
    torch.set_default_dtype(dtype)
    yield
    torch.set_default_dtype(torch.float32)


class TorchStack(nn.Module):
    """Encoder and decoder of torch's layers, loaded with the weights of one of ours."""

    def __init__(self, ours: EncoderDecoder):
        super().__init__()
        config = ours.config
        settings = {
            "d_model": config.d_model,
            "nhead": config.num_heads,
            "dim_feedforward": config.ff_width,
            "dropout": 0.0,
            "activation": config.activation,
            "norm_first": config.norm_position == "pre",
            "batch_first": True,
        }
        self.ours, self.pre = ours, config.norm_position == "pre"
        self.encoder = nn.ModuleList(nn.TransformerEncoderLayer(**settings) for _ in ours.encoder_layers)
        self.decoder = nn.ModuleList(nn.TransformerDecoderLayer(**settings) for _ in ours.decoder_layers)
        for theirs, layer in zip(self.encoder, ours.encoder_layers, strict=True):
            theirs.load_state_dict(_common(layer) | _norms(layer))
        for theirs, layer in zip(self.decoder, ours.decoder_layers, strict=True):
            theirs.load_state_dict(_common(layer) | _cross(layer.cross_attention) | _norms(layer))

    def forward(self, source: Tensor, target: Tensor, source_real: Tensor, target_real: Tensor) -> Tensor:
        # torch's masks are the other way round: True = may not attend.
        forbidden = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        memory = _embed(self.ours.source_embedding.weight, source)
        for layer in self.encoder:
            memory = layer(memory, src_key_padding_mask=~source_real)
        memory = self._final(memory, self.ours.encoder_norm)
        x = _embed(self.ours.target_embedding.weight, target)
        for layer in self.decoder:
            x = layer(
                x,
                memory,
                tgt_mask=forbidden,
                tgt_key_padding_mask=~target_real,
                memory_key_padding_mask=~source_real,
            )
        return self._final(x, self.ours.decoder_norm) @ self.ours.output.weight.T

    def _final(self, x: Tensor, norm: nn.Module) -> Tensor:
        return F.layer_norm(x, (D_MODEL,), norm.weight, norm.bias, 1e-5) if self.pre else x


def _attention(prefix: str, query_key_value: Tensor, bias: Tensor, output: nn.Linear) -> dict[str, Tensor]:
    return {
        f"{prefix}.in_proj_weight": query_key_value,
        f"{prefix}.in_proj_bias": bias,
        f"{prefix}.out_proj.weight": output.weight,
        f"{prefix}.out_proj.bias": output.bias,
    }


def _common(layer: TransformerLayer) -> dict[str, Tensor]:
    attention: SelfAttention = layer.self_attention
    joint = attention.query_key_value
    return _attention("self_attn", joint.weight, joint.bias, attention.output) | {
        "linear1.weight": layer.feed_forward.inner.weight,
        "linear1.bias": layer.feed_forward.inner.bias,
        "linear2.weight": layer.feed_forward.outer.weight,
        "linear2.bias": layer.feed_forward.outer.bias,
    }


def _cross(attention: CrossAttention) -> dict[str, Tensor]:
    weight = torch.cat([attention.query.weight, attention.key_value.weight])
    bias = torch.cat([attention.query.bias, attention.key_value.bias])
    return _attention("multihead_attn", weight, bias, attention.output)


def _norms(layer: TransformerLayer) -> dict[str, Tensor]:
    residuals = [layer.self_residual, layer.feed_forward_residual]
    if layer.cross_attention is not None:
        residuals.insert(1, layer.cross_residual)
    named = {f"norm{number}": residual.norm for number, residual in enumerate(residuals, start=1)}
    return {f"{name}.{part}": getattr(norm, part) for name, norm in named.items() for part in ("weight", "bias")}


def _embed(table: Tensor, tokens: Tensor) -> Tensor:
    """Scaled embedding plus the sinusoid, written as the paper's formula."""
    sinusoid = [
        [
            (math.sin if column % 2 == 0 else math.cos)(time / 10000 ** (2 * (column // 2) / D_MODEL))
            for column in range(D_MODEL)
        ]
        for time in range(tokens.shape[1])
    ]
    return table[tokens] * math.sqrt(D_MODEL) + torch.tensor(sinusoid, dtype=table.dtype)


def _both(norm_position: str, activation: str) -> tuple[EncoderDecoder, TorchStack]:
    torch.manual_seed(3)
    config = EncoderDecoderConfig(
        name="encoder_decoder",
        num_encoder_layers=2,
        num_decoder_layers=3,
        d_model=D_MODEL,
        num_heads=HEADS,
        d_ff=D_FF,
        max_length=16,
        norm_position=norm_position,
        activation=activation,
        dropout=0.0,
        tie_embeddings="none",
    )
    ours = EncoderDecoder(config, SOURCE_VOCAB, TARGET_VOCAB)
    with torch.no_grad():
        for parameter in ours.parameters():  # biases and norms too: zeros and ones would hide a mix-up
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return ours, TorchStack(ours)


def _batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    source = torch.randint(SOURCE_VOCAB, (4, 7), generator=generator)
    target = torch.randint(TARGET_VOCAB, (4, 5), generator=generator)
    source_real = torch.arange(7)[None] < torch.tensor([7, 4, 1, 6])[:, None]
    target_real = torch.arange(5)[None] < torch.tensor([2, 5, 4, 1])[:, None]
    return source, target, source_real, target_real


@SETTINGS
@PRECISIONS
@pytest.mark.usefixtures("_default_dtype")
def test_logits_in_evaluation_equal_torch_layers(norm_position, activation, dtype, tolerance):
    ours, theirs = _both(norm_position, activation)
    ours.eval()
    source, target, source_real, target_real = _batch()
    # torch switches to a fused inference kernel under no_grad in eval mode, which fills padding rows with
    # zeros; asking for gradients keeps the plain path.
    actual = ours(source, target, source_real, target_real)
    expected = theirs(source, target, source_real, target_real)
    assert actual.dtype == dtype
    assert (actual - expected)[target_real].abs().max() < tolerance
    assert expected[target_real].abs().max() > 0.5  # not an agreement of zeros


@SETTINGS
@PRECISIONS
@pytest.mark.usefixtures("_default_dtype")
def test_gradients_in_training_equal_torch_layers(norm_position, activation, dtype, tolerance):
    ours, theirs = _both(norm_position, activation)
    ours.train()
    source, target, source_real, target_real = _batch()
    probe = torch.randn(4, 5, TARGET_VOCAB, generator=torch.Generator().manual_seed(5), dtype=dtype)
    probe[~target_real] = 0.0

    (ours(source, target, source_real, target_real) * probe).sum().backward()
    own = {name: parameter.grad.clone() for name, parameter in ours.named_parameters()}
    ours.zero_grad()
    (theirs(source, target, source_real, target_real) * probe).sum().backward()
    shared = {name: parameter.grad for name, parameter in ours.named_parameters() if parameter.grad is not None}
    assert {"source_embedding.weight", "target_embedding.weight", "output.weight"} <= shared.keys()
    for name, expected in shared.items():
        assert (own[name] - expected).abs().max() < tolerance * max(1.0, expected.abs().max().item()), name
    for stack, layers in [(theirs.encoder, ours.encoder_layers), (theirs.decoder, ours.decoder_layers)]:
        prefix = "encoder_layers" if stack is theirs.encoder else "decoder_layers"
        for index, (layer, _) in enumerate(zip(stack, layers, strict=True)):
            start = f"{prefix}.{index}."
            pairs = [
                (layer.self_attn.in_proj_weight, own[start + "self_attention.query_key_value.weight"]),
                (layer.self_attn.out_proj.bias, own[start + "self_attention.output.bias"]),
                (layer.linear1.weight, own[start + "feed_forward.inner.weight"]),
                (layer.linear2.bias, own[start + "feed_forward.outer.bias"]),
                (layer.norm1.weight, own[start + "self_residual.norm.weight"]),
            ]
            if prefix == "decoder_layers":
                parts = [own[f"{start}cross_attention.{part}.weight"] for part in ("query", "key_value")]
                pairs.append((layer.multihead_attn.in_proj_weight, torch.cat(parts)))
                pairs.append((layer.norm2.bias, own[start + "cross_residual.norm.bias"]))
            for theirs_parameter, our_gradient in pairs:
                expected = theirs_parameter.grad
                scale = max(1.0, expected.abs().max().item())
                assert (our_gradient - expected).abs().max() < tolerance * scale, start


def test_the_two_norm_positions_and_activations_really_differ():
    source, target, source_real, target_real = _batch()
    logits = [
        _both(norm_position, activation)[0](source, target, source_real, target_real)
        for norm_position in ("pre", "post")
        for activation in ("relu", "gelu")
    ]
    for first in range(4):
        for second in range(first):
            assert (logits[first] - logits[second]).abs().max() > 1e-3
