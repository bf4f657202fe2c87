"""Tasks learn from packed rows what they learn from the same examples in rows of their own."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from transformer.data.batches.collate import collate_texts, collate_translation
from transformer.data.batches.documents import Documents
from transformer.data.batches.packing import collate_packed_pairs, collate_packed_texts
from transformer.data.subwords.config import CharConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.training.config import TrainConfig
from transformer.training.language_model import LanguageModelTask
from transformer.training.translation import TranslationTask

Settings = Callable[..., dict[str, Any]]
VOCAB = 30


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_translation_loss_of_packed_rows(run_settings: Settings, smoothing: float) -> None:
    config = TrainConfig.from_plain(run_settings("translation", {"label_smoothing": smoothing}))
    torch.manual_seed(0)
    model = EncoderDecoder(config.model, VOCAB, VOCAB).double()
    task = TranslationTask(config, model, Tokenizer.train(CharConfig(), ["ab"]), [])
    pairs = [(0, [5, 6, 7], [8, 9]), (1, [10], [11, 12, 13, 14]), (2, [15, 16], [])]
    special = {"pad_id": 0, "bos_id": 1, "eos_id": 2}
    plain = task.loss(collate_translation(pairs, **special))
    packed = task.loss(collate_packed_pairs([pairs[:2], pairs[2:]], 9, **special))
    assert float(packed.loss.detach()) == pytest.approx(float(plain.loss.detach()), rel=1e-12)
    assert int(packed.num_tokens) == int(plain.num_tokens) == 9


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_language_model_loss_of_packed_rows(run_settings: Settings, smoothing: float) -> None:
    config = TrainConfig.from_plain(run_settings("text", {"label_smoothing": smoothing, "model.position": "learned"}))
    torch.manual_seed(0)
    model = DecoderOnly(config.model, VOCAB).double()
    task = LanguageModelTask(config, model, Tokenizer.train(CharConfig(), ["ab"]), Documents([[1, 2]], 1), 1)
    texts = [(0, [5, 6, 7]), (1, [8, 9, 10, 11, 12]), (2, [13, 14])]
    plain = task.loss(collate_texts(texts, 0))
    packed = task.loss(collate_packed_texts([texts[:2], texts[2:]], 8, pad_id=0))
    assert float(packed.loss.detach()) == pytest.approx(float(plain.loss.detach()), rel=1e-12)
    assert int(packed.num_tokens) == int(plain.num_tokens) == 7
