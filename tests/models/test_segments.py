"""What packed rows are refused for: segments that are too long, that contradict a mask, or that are missing."""

import pytest
import torch

from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder

VOCAB = 13
SIZES = {"d_model": 16, "num_heads": 4, "d_ff": 12, "max_length": 8, "dropout": 0.0}


def _translation() -> EncoderDecoder:
    plain = {"name": "encoder_decoder", "num_encoder_layers": 1, "num_decoder_layers": 1, **SIZES}
    return EncoderDecoder(EncoderDecoderConfig.from_plain(plain), VOCAB, VOCAB)


def _language_model() -> DecoderOnly:
    return DecoderOnly(DecoderOnlyConfig.from_plain({"name": "decoder_only", "num_layers": 1, **SIZES}), VOCAB)


def test_each_segment_may_be_as_long_as_the_model_allows_and_no_longer() -> None:
    translation, language = _translation(), _language_model()
    tokens = torch.full((2, 20), 3)
    fits = torch.tensor([[1] * 8 + [2] * 8 + [0] * 4, [1] * 4 + [2] * 8 + [3] * 8])
    long = torch.tensor([[1] * 8 + [2] * 8 + [0] * 4, [1] * 3 + [2] * 9 + [3] * 8])
    message = "segment 2 of row 1 has 9 tokens, but `max_length` is 8"
    language.hidden(tokens, segments_BL=fits)
    memory = translation.encode(tokens, segments_BS=fits).memory_BSD
    translation.decode(tokens, memory, source_segments_BS=fits, target_segments_BT=fits)
    with pytest.raises(ValueError, match=message):
        language.hidden(tokens, segments_BL=long)
    with pytest.raises(ValueError, match=message):
        translation.encode(tokens, segments_BS=long)
    with pytest.raises(ValueError, match=message):
        translation.decode(tokens, memory, source_segments_BS=fits, target_segments_BT=long)
    with pytest.raises(ValueError, match="the sequence has 20 tokens, but `max_length` is 8"):
        language.hidden(tokens)


def test_segments_exclude_masks_and_caches() -> None:
    translation, language = _translation(), _language_model()
    tokens, ones, real = torch.full((1, 4), 3), torch.ones(1, 4, dtype=torch.int64), torch.ones(1, 4) > 0
    memory = translation.encode(tokens).memory_BSD
    both = {"source_segments_BS": ones, "target_segments_BT": ones}
    calls = [
        lambda: language.hidden(tokens, real, segments_BL=ones),
        lambda: language.hidden(tokens, segments_BL=ones, cache=language.new_cache()),
        lambda: translation.encode(tokens, real, segments_BS=ones),
        lambda: translation.decode(tokens, memory, real, **both),
        lambda: translation.decode(tokens, memory, None, real, **both),
        lambda: translation.decode(tokens, memory, **both, cache=translation.new_cache()),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="segments exclude a mask and a cache"):
            call()


def test_segments_of_one_side_only_are_refused() -> None:
    model, tokens, ones = _translation(), torch.full((1, 4), 3), torch.ones(1, 4, dtype=torch.int64)
    memory = model.encode(tokens).memory_BSD
    for segments in ({"source_segments_BS": ones}, {"target_segments_BT": ones}):
        with pytest.raises(ValueError, match="packed rows need segments of both sides, but those of one are missing"):
            model.decode(tokens, memory, **segments)
    for shape in ((1, 5), (2, 4)):
        with pytest.raises(ValueError, match=rf"shape \(1, 4\), but are torch.int64 of shape \({shape[0]}, {shape[1]}"):
            model.decode(
                tokens, memory, source_segments_BS=torch.ones(shape, dtype=torch.int64), target_segments_BT=ones
            )
