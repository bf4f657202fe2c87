"""`DecoderOnly` against Hugging Face's GPT-2 and Llama, same random weights, nothing downloaded."""

import pytest
import torch
from torch import Tensor, nn

from transformer.models.config import DecoderOnlyConfig
from transformer.models.decoder_only import DecoderOnly

transformers = pytest.importorskip("transformers")

VOCAB, LAYERS = 29, 2
PRECISIONS = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])


@pytest.fixture(autouse=True)
def _default_dtype(request):
    """Position tables are made in the default precision."""
    torch.set_default_dtype(request.getfixturevalue("dtype"))
    yield
    torch.set_default_dtype(torch.float32)


def _perturbed(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Random biases and norms too: zeros and ones would hide a mix-up."""
    model = model.to(dtype).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=dtype) * 0.1)
    return model


def _tokens() -> Tensor:
    return torch.randint(VOCAB, (3, 9), generator=torch.Generator().manual_seed(2))


# GPT-2


def _gpt2(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=VOCAB, n_positions=16, n_embd=24, n_layer=LAYERS, n_head=3, n_inner=40)
    return _perturbed(transformers.GPT2LMHeadModel(config), dtype)


def _ours_from_gpt2(theirs: nn.Module) -> DecoderOnly:
    config = DecoderOnlyConfig(
        name="decoder_only",
        num_layers=LAYERS,
        d_model=24,
        num_heads=3,
        d_ff=40,
        max_length=16,
        activation="gelu_tanh",
        position="learned",
    )
    ours = DecoderOnly(config, VOCAB).eval()
    ours.load_state_dict(_weights_of_gpt2(theirs.state_dict()))
    return ours


def _weights_of_gpt2(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Same names in the same order; GPT-2 stores the weights of its linear maps transposed."""
    ours = {
        "embedding.weight": theirs["transformer.wte.weight"],
        "output.weight": theirs["lm_head.weight"],
        "position.embedding.weight": theirs["transformer.wpe.weight"],
        "norm.weight": theirs["transformer.ln_f.weight"],
        "norm.bias": theirs["transformer.ln_f.bias"],
    }
    norms = {"self_residual.norm": "ln_1", "feed_forward_residual.norm": "ln_2"}
    linears = {
        "self_attention.query_key_value": "attn.c_attn",
        "self_attention.output": "attn.c_proj",
        "feed_forward.inner": "mlp.c_fc",
        "feed_forward.outer": "mlp.c_proj",
    }
    for layer in range(LAYERS):
        for name, other in (norms | linears).items():
            weight = theirs[f"transformer.h.{layer}.{other}.weight"]
            ours[f"layers.{layer}.{name}.weight"] = weight.T if name in linears else weight
            ours[f"layers.{layer}.{name}.bias"] = theirs[f"transformer.h.{layer}.{other}.bias"]
    return ours


@PRECISIONS
def test_gpt2_logits(dtype, tolerance):
    theirs = _gpt2(dtype)
    ours, tokens = _ours_from_gpt2(theirs), _tokens()
    with torch.no_grad():
        actual, expected = ours(tokens), theirs(tokens).logits
    assert actual.dtype == expected.dtype == dtype
    assert (actual - expected).abs().max() < tolerance
    assert expected.std() > 0.1


@PRECISIONS
def test_gpt2_gradients(dtype, tolerance):
    theirs = _gpt2(dtype)
    ours, tokens = _ours_from_gpt2(theirs), _tokens()
    ours(tokens).square().mean().backward()
    theirs(tokens).logits.square().mean().backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    expected = _weights_of_gpt2(gradients | {"lm_head.weight": gradients["transformer.wte.weight"]})
    for name, parameter in ours.named_parameters():
        assert (parameter.grad - expected[name]).abs().max() < tolerance, name


@PRECISIONS
def test_gpt2_in_cached_steps(dtype, tolerance):
    theirs = _gpt2(dtype)
    ours, tokens = _ours_from_gpt2(theirs), _tokens()
    cache = ours.new_cache()
    with torch.no_grad():
        expected = theirs(tokens).logits
        for start, end in [(0, 4), (4, 5), (5, 8), (8, 9)]:
            actual = ours(tokens[:, start:end], cache=cache)
            assert (actual - expected[:, start:end]).abs().max() < tolerance


@PRECISIONS
def test_gpt2_left_padding(dtype, tolerance):
    theirs = _gpt2(dtype)
    ours, tokens = _ours_from_gpt2(theirs), _tokens()
    real = torch.arange(9)[None] >= torch.tensor([0, 3, 7])[:, None]
    positions = (real.long().cumsum(1) - 1).clamp_min(0)
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=real.long(), position_ids=positions).logits
        assert (ours(tokens, real) - expected)[real].abs().max() < tolerance


# Llama


class Float64Rotary(nn.Module):
    """Stands in for theirs, which always computes angles, cosines and sines in float32."""

    def __init__(self, head_size: int, base: float):
        super().__init__()
        self.inverse = torch.tensor([base ** (-2 * i / head_size) for i in range(head_size // 2)], dtype=torch.float64)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = position_ids[..., None].double() * self.inverse
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos(), angles.sin()


def _llama(dtype: torch.dtype, kv_heads: int, *, tied: bool) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=LAYERS,
        num_attention_heads=6,
        num_key_value_heads=kv_heads,
        max_position_embeddings=16,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        attn_implementation="sdpa",  # the eager one takes its softmax in float32
    )
    theirs = _perturbed(transformers.LlamaForCausalLM(config), dtype)
    if dtype == torch.float64:
        # Their code casts norms and rotary angles to float32 even in a float64 model, an error of 1e-8.
        # Everything else is left alone; the same parts are compared as they are in float32.
        theirs.model.rotary_emb = Float64Rotary(head_size=4, base=500.0)
        for parent in theirs.model.modules():
            for name, child in list(parent.named_children()):
                if isinstance(child, transformers.models.llama.modeling_llama.LlamaRMSNorm):
                    norm = nn.RMSNorm(24, eps=1e-5)
                    norm.weight = child.weight
                    setattr(parent, name, norm)
    return theirs


def _ours_from_llama(theirs: nn.Module, kv_heads: int, *, tied: bool) -> DecoderOnly:
    config = DecoderOnlyConfig(
        name="decoder_only",
        num_layers=LAYERS,
        d_model=24,
        num_heads=6,
        num_kv_heads=kv_heads,
        d_ff=40,
        max_length=16,
        activation="swiglu",
        norm="rms_norm",
        position="rotary",
        rotary_base=500.0,
        bias=False,
        tie_embeddings=tied,
    )
    ours = DecoderOnly(config, VOCAB).eval()
    ours.load_state_dict(_weights_of_llama(theirs.state_dict()))
    return ours


def _weights_of_llama(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Queries, keys and values are one matrix of ours, and so are the gate and the other half of SwiGLU."""
    ours = {
        "embedding.weight": theirs["model.embed_tokens.weight"],
        "output.weight": theirs["lm_head.weight"],
        "norm.weight": theirs["model.norm.weight"],
    }
    parts = {
        "self_residual.norm": ["input_layernorm"],
        "self_attention.query_key_value": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        "self_attention.output": ["self_attn.o_proj"],
        "feed_forward_residual.norm": ["post_attention_layernorm"],
        "feed_forward.inner": ["mlp.gate_proj", "mlp.up_proj"],
        "feed_forward.outer": ["mlp.down_proj"],
    }
    for layer in range(LAYERS):
        for name, others in parts.items():
            weights = [theirs[f"model.layers.{layer}.{other}.weight"] for other in others]
            ours[f"layers.{layer}.{name}.weight"] = torch.cat(weights)
    return ours


@pytest.mark.parametrize("kv_heads", [6, 3, 2, 1])
@PRECISIONS
def test_llama_logits(dtype, tolerance, kv_heads):
    theirs = _llama(dtype, kv_heads, tied=False)
    ours, tokens = _ours_from_llama(theirs, kv_heads, tied=False), _tokens()
    with torch.no_grad():
        actual, expected = ours(tokens), theirs(tokens).logits
    assert actual.dtype == expected.dtype == dtype
    assert (actual - expected).abs().max() < tolerance
    assert expected.std() > 0.1


@PRECISIONS
def test_llama_in_cached_steps_with_left_padding(dtype, tolerance):
    theirs = _llama(dtype, 2, tied=True)
    ours, tokens = _ours_from_llama(theirs, 2, tied=True), _tokens()
    real = torch.arange(9)[None] >= torch.tensor([0, 3, 2])[:, None]
    positions = (real.long().cumsum(1) - 1).clamp_min(0)
    cache = ours.new_cache()
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=real.long(), position_ids=positions).logits
        for start, end in [(0, 4), (4, 5), (5, 8), (8, 9)]:
            actual = ours(tokens[:, start:end], real[:, start:end], cache=cache)
            assert (actual - expected[:, start:end])[real[:, start:end]].abs().max() < tolerance
