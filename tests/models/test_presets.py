"""The shipped model settings: each loads and has its published number of parameters."""

from pathlib import Path

import pytest
import torch
import yaml

from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.init import count_parameters

FOLDER = Path(__file__).parents[2] / "configs" / "model"

# Vocabulary (one for both sides) and parameters, tied matrices once, biases in every projection. With D = d_model,
# F = d_ff: attention 4DD + 4D, feed-forward 2DF + F + D, LayerNorm 2D; an encoder layer has one attention and two
# norms, a decoder layer two and three; Post-Norm has no last norm.
TRANSLATION = {
    # 4 * 132,480 + 4 * 198,784 + 9,712 * 128. Published as 2.57 million.
    "transformer_tiny": (9_712, 2_568_192),
    # With F = 344 and SwiGLU, 3DF + 2F + D; norms without biases, D; two of head size 32 in each attention:
    # 4 * 199,280 + 4 * 265,520 + 4 more norms of 128 + 4,000 * 128.
    "rotary_tiny": (4_000, 2_371_712),
    # 3 * 789,760 + 3 * 1,053,440 + 2 last norms of 512 + 8,000 * 256.
    "transformer_small": (8_000, 7_578_624),
    # 6 * 3,152,384 + 6 * 4,204,032 + 37,000 * 512. Published as 65 million, with a vocabulary of "about 37,000".
    "transformer_base": (37_000, 63_082_496),
    # 6 * 12,596,224 + 6 * 16,796,672 + 37,000 * 1,024. Published as 213 million.
    "transformer_big": (37_000, 214_245_376),
}
LANGUAGE = {
    # No biases: 4 * (12 * 128^2 + 2 * 128) + 128 + (65 + 64) * 128, as nanoGPT reports with its positions.
    "lm_char": (65, 804_096),
    # 4 * (12 * 128^2 + 13 * 128) + 256 + (4,000 + 256) * 128.
    "lm_tiny": (4_000, 1_338_112),
    # 12 * (12 * 768^2 + 13 * 768) + 2 * 768 + (50,257 + 1,024) * 768: GPT-2's "124M".
    "lm_small": (50_257, 124_439_808),
    # 4 * (128 * (128 + 64 + 64 + 128) + 3 * 128 * 344 + 2 * 128) + 128 + 4,000 * 128.
    "llama_tiny": (4_000, 1_238_144),
}


def _read(name: str) -> dict[str, object]:
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


def test_every_preset_is_tested():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(TRANSLATION) | set(LANGUAGE)


@pytest.mark.parametrize("name", TRANSLATION)
def test_translation_preset(name):
    vocab_size, parameters = TRANSLATION[name]
    config = EncoderDecoderConfig.from_plain(_read(name))
    with torch.device("meta"):  # shapes only
        model = EncoderDecoder(config, vocab_size, vocab_size)
    assert count_parameters(model) == parameters


@pytest.mark.parametrize("name", LANGUAGE)
def test_language_preset(name):
    vocab_size, parameters = LANGUAGE[name]
    config = DecoderOnlyConfig.from_plain(_read(name))
    with torch.device("meta"):
        model = DecoderOnly(config, vocab_size)
    assert count_parameters(model) == parameters


@pytest.mark.parametrize("name", [*TRANSLATION, *LANGUAGE])
def test_no_preset_repeats_a_default(name):
    """Published sizes may equal a default; anything else that is written is there because it differs."""
    plain = _read(name)
    kind = EncoderDecoderConfig if name in TRANSLATION else DecoderOnlyConfig
    repeated = {key for key, value in plain.items() if value == kind.model_fields[key].default}
    assert repeated == set()


@pytest.mark.parametrize("name", ["transformer_tiny", "transformer_base", "transformer_big"])
def test_the_published_translation_models_are_as_published(name):
    config = EncoderDecoderConfig.from_plain(_read(name))
    assert (config.norm_position, config.activation, config.position) == ("post", "relu", "sinusoidal")
    assert (config.tie_embeddings, config.scale_embeddings) == ("all", True)
    assert config.dropout == (0.1 if name == "transformer_base" else 0.3)


@pytest.mark.parametrize(
    "name", ["transformer_tiny", "rotary_tiny", "transformer_small", "lm_char", "lm_tiny", "llama_tiny"]
)
def test_a_small_preset_computes_logits(name):
    torch.manual_seed(0)
    tokens = torch.randint(65, (2, 9))
    if name in TRANSLATION:
        logits = EncoderDecoder(EncoderDecoderConfig.from_plain(_read(name)), 65, 65)(tokens, tokens[:, :4])
        assert logits.shape == (2, 4, 65)
    else:
        logits = DecoderOnly(DecoderOnlyConfig.from_plain(_read(name)), 65)(tokens)
        assert logits.shape == (2, 9, 65)
    assert logits.isfinite().all()
