"""Whole models (C7, C8, C10-C14): one width, one length, refused inputs, initial weights, size, cost."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pydantic
import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.init import count_parameters
from transformer.nn.positions import LearnedPosition

LM = {"name": "decoder_only", "num_layers": 2, "d_model": 16, "num_heads": 2, "max_length": 8}
TRANSLATION = {"name": "encoder_decoder", "num_encoder_layers": 1, "num_decoder_layers": 2, "d_model": 16,
               "num_heads": 2, "max_length": 8}  # fmt: skip


def language_model(vocab_size: int = 11, **settings: object) -> DecoderOnly:
    return DecoderOnly(DecoderOnlyConfig.from_plain({**LM, **settings}), vocab_size).eval()


def translation_model(source_size: int = 11, target_size: int = 11, **settings: object) -> EncoderDecoder:
    config = EncoderDecoderConfig.from_plain({**TRANSLATION, **settings})
    return EncoderDecoder(config, source_size, target_size).eval()


@pytest.mark.parametrize("key", ["n_embd", "dim", "d_embedding", "max_seq_len", "block_size"])
def test_c07_no_second_width_or_length(key: str) -> None:
    for build, data in ((DecoderOnlyConfig, LM), (EncoderDecoderConfig, TRANSLATION)):
        with pytest.raises(pydantic.ValidationError, match=rf"(?s){key}.*Extra inputs are not permitted"):
            build.from_plain({**data, key: 8})


def test_c07_every_part_has_the_one_width_and_length() -> None:
    model = translation_model(position="learned", tie_embeddings="none")
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            assert module.normalized_shape == (16,)
        elif isinstance(module, nn.Embedding):
            assert module.embedding_dim == 16
        elif isinstance(module, LearnedPosition):
            assert module.embedding.num_embeddings == 8
    assert translation_model().source_position.table_LD.shape == (8, 16)
    tokens = torch.zeros(1, 8, dtype=torch.int64)
    assert model(tokens, tokens).shape == (1, 8, 11)  # the whole maximum length is usable


@dataclass
class TwoNames:
    """The fault: two names for the width and two for the length, checked nowhere."""

    n_embd: int
    dim: int
    max_seq_len: int
    block_size: int


class TwoNamesModel(nn.Module):
    def __init__(self, config: TwoNames) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(11, config.n_embd)
        self.position = nn.Embedding(config.block_size, config.n_embd)
        self.value = nn.Linear(config.dim, config.dim)

    def forward(self, tokens: Tensor) -> Tensor:
        assert tokens.shape[1] <= self.config.max_seq_len
        return self.value(self.embedding(tokens) + self.position(torch.arange(tokens.shape[1])))  # type: ignore[no-any-return]


def test_c07_counterexample_two_names_build_and_fail_later() -> None:
    tokens = torch.zeros(1, 6, dtype=torch.int64)
    assert TwoNamesModel(TwoNames(8, 8, 8, 8))(tokens).shape == (1, 6, 8)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        TwoNamesModel(TwoNames(n_embd=8, dim=4, max_seq_len=8, block_size=8))(tokens)
    with pytest.raises(IndexError):  # six tokens pass the first length check and fail in the position table
        TwoNamesModel(TwoNames(n_embd=8, dim=8, max_seq_len=8, block_size=4))(tokens)


def test_c08_heads_must_divide_the_width() -> None:
    for build, data in ((DecoderOnlyConfig, LM), (EncoderDecoderConfig, TRANSLATION)):
        with pytest.raises(pydantic.ValidationError, match=r"`num_heads` must divide `d_model` \(16\), but is 3\."):
            build.from_plain({**data, "num_heads": 3})
        with pytest.raises(pydantic.ValidationError, match=r"`num_kv_heads` must divide `num_heads` \(4\), but is 3"):
            build.from_plain({**data, "num_heads": 4, "num_kv_heads": 3})


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "alibi", "none"])
def test_c10_too_long_input(position: str) -> None:
    nine, message = torch.zeros(1, 9, dtype=torch.int64), r"9 tokens, but `max_length` is 8"
    model, translation = language_model(position=position), translation_model(position=position)
    memory = translation.encode(nine[:, :8]).memory_BSD
    cache = model.new_cache()
    model(nine[:, :8], cache=cache)
    calls: list[Callable[[], object]] = [
        lambda: model(nine),
        lambda: model(nine[:, :1], cache=cache),
        lambda: translation.encode(nine),
        lambda: translation.decode(nine, memory),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.zeros(2, 3, 1, dtype=torch.int64), r"shape \(batch, length\), but have \(2, 3, 1\)"),
        (torch.zeros(3, dtype=torch.int64), r"shape \(batch, length\), but have \(3,\)"),
        (torch.zeros(2, 3, dtype=torch.float32), r"must be int64 or int32, but are torch\.float32"),
        (torch.tensor([[1, 11]]), r"from 0 to 10 .*but range from 1 to 11"),
        (torch.tensor([[-1, 4]]), r"from 0 to 10 .*but range from -1 to 4"),
    ],
)
def test_c11_bad_token_ids(tokens: Tensor, message: str) -> None:
    translation, right = translation_model(), torch.zeros(2, 3, dtype=torch.int64)
    memory = translation.encode(right).memory_BSD
    for call in (language_model(), translation.encode, lambda ids: translation.decode(ids, memory)):
        with pytest.raises(ValueError, match=message):
            call(tokens)


@pytest.mark.parametrize(("settings", "std"), [({}, 0.02), ({"init_std": 0.05}, 0.05)])
@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_c12_normal_initialization(settings: dict[str, float], std: float, position: str) -> None:
    model = language_model(500, d_model=64, max_length=64, position=position, tie_embeddings=False, **settings)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            assert weight.count_nonzero() == 0
        elif "norm" in name:
            assert (weight == 1).all()
        else:
            # Two layers with two sublayers each write into the residual stream.
            expected = std / math.sqrt(4) if name.endswith(("attention.output.weight", "outer.weight")) else std
            assert weight.std().item() == pytest.approx(expected, rel=0.05), name
            assert abs(weight.mean().item()) < 0.1 * std


def test_c12_xavier_initialization() -> None:
    model = translation_model(500, 500, d_model=64)
    assert model.target_embedding.weight.std().item() == pytest.approx(1 / 8, rel=0.05)
    query, key, value = model.encoder_layers[0].self_attention.query_key_value.weight.chunk(3)
    memory_key, memory_value = model.decoder_layers[0].cross_attention.key_value.weight.chunk(2)
    for square in (query, key, value, memory_key, memory_value):  # a fused matrix as a whole would get less
        assert square.abs().max().item() == pytest.approx(math.sqrt(6 / (64 + 64)), rel=0.01)
    inner = model.encoder_layers[0].feed_forward.inner.weight
    assert inner.abs().max().item() == pytest.approx(math.sqrt(6 / (64 + 256)), rel=0.01)


@pytest.mark.parametrize("tie", ["none", "decoder", "all"])
def test_c13_translation_parameters_by_storage(tie: str) -> None:
    model = translation_model(tie_embeddings=tie)
    by_storage = {p.data_ptr(): p.numel() for _, p in model.named_parameters(remove_duplicate=False)}
    assert count_parameters(model) == sum(by_storage.values())
    norms, attention, feed_forward = 2 * 16, 4 * (16 * 16 + 16), 16 * 64 + 64 + 64 * 16 + 16
    layers = (attention + feed_forward + 2 * norms) + 2 * (2 * attention + feed_forward + 3 * norms) + 2 * norms
    tables = {"none": 3, "decoder": 2, "all": 1}[tie]
    assert count_parameters(model) == layers + tables * 11 * 16
    assert count_parameters(model, embeddings=False) == layers + (11 * 16 if tie == "none" else 0)


@pytest.mark.parametrize("tie", [True, False])
def test_c13_language_model_parameters(tie: bool) -> None:
    model = language_model(tie_embeddings=tie, position="learned", bias=False)
    layers = 2 * (4 * 16 * 16 + 2 * 16 * 64 + 2 * 16) + 16
    assert count_parameters(model) == layers + 8 * 16 + (1 if tie else 2) * 11 * 16
    assert count_parameters(model, embeddings=False) == layers + (0 if tie else 11 * 16)


def test_c14_only_the_last_position_is_projected() -> None:
    model, tokens = language_model(), torch.randint(0, 11, (3, 7))
    with FlopCounterMode(display=False) as one:
        logits = model.next_logits(tokens)
    with FlopCounterMode(display=False) as all_positions:
        every = model(tokens)
    assert logits.shape == (3, 11)
    assert (logits - every[:, -1]).abs().max() < 1e-12
    assert all_positions.get_total_flops() - one.get_total_flops() == 2 * 3 * (7 - 1) * 16 * 11
