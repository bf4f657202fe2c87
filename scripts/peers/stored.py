"""What the processes of a training contest share: batches and pairs as token ids, and the first weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer.data.batches.collate import TextBatch, TranslationBatch
from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder

BatchT = TypeVar("BatchT", TranslationBatch, TextBatch)

BATCHES, PAIRS, WEIGHTS, CONFIG = "batches.pt", "pairs.pt", "weights.pt", "model.json"


class Special(NamedTuple):
    """Ids of padding, start and end."""

    pad_id: int
    bos_id: int
    eos_id: int


class StoredPairs(NamedTuple):
    """Sentence pairs as ids, without start and end tokens, and the special ids."""

    sources: list[list[int]]
    targets: list[list[int]]
    special: Special


def save_batches(folder: Path, batches: Sequence[TranslationBatch | TextBatch]) -> None:
    """Leave them in the folder, as they are."""
    torch.save([list(batch) for batch in batches], folder / BATCHES)


def load_batches(folder: Path, kind: type[BatchT]) -> list[BatchT]:
    """The same batches in another process."""
    return [kind(*fields) for fields in torch.load(folder / BATCHES, weights_only=True)]


def save_pairs(folder: Path, pairs: StoredPairs) -> None:
    """Leave them in the folder."""
    torch.save([pairs.sources, pairs.targets, list(pairs.special)], folder / PAIRS)


def load_pairs(folder: Path) -> StoredPairs:
    """The same pairs in another process."""
    sources, targets, special = torch.load(folder / PAIRS, weights_only=True)
    return StoredPairs(sources, targets, Special(*special))


def save_model(folder: Path, model: EncoderDecoder | DecoderOnly) -> None:
    """Leave settings and weights in the folder."""
    (folder / CONFIG).write_text(model.config.model_dump_json(), encoding="utf-8")
    torch.save([model.vocab_size, model.state_dict()], folder / WEIGHTS)


def load_translating(folder: Path) -> EncoderDecoder:
    """The translation model, in evaluation mode."""
    config = EncoderDecoderConfig.model_validate_json((folder / CONFIG).read_text(encoding="utf-8"))
    vocab_size, weights = torch.load(folder / WEIGHTS, weights_only=True)
    model = EncoderDecoder(config, vocab_size, vocab_size)
    model.load_state_dict(weights)
    return model.eval()


def load_continuing(folder: Path) -> DecoderOnly:
    """The language model, in evaluation mode."""
    config = DecoderOnlyConfig.model_validate_json((folder / CONFIG).read_text(encoding="utf-8"))
    vocab_size, weights = torch.load(folder / WEIGHTS, weights_only=True)
    model = DecoderOnly(config, vocab_size)
    model.load_state_dict(weights)
    return model.eval()


@torch.inference_mode()
def expected_loss(model: EncoderDecoder | DecoderOnly, batch: TranslationBatch | TextBatch, smoothing: float) -> float:
    """Label-smoothed loss per token by our model in evaluation mode, with torch's own loss over all logits."""
    if isinstance(batch, TranslationBatch):
        assert isinstance(model, EncoderDecoder)
        logits = model(batch.source_BS, batch.target_BT, batch.source_mask_BS)
        labels, scored = batch.labels_BT, batch.scored_BT
    else:
        assert isinstance(model, DecoderOnly)
        logits, labels, scored = model(batch.tokens_BL), batch.labels_BL, batch.scored_BL
    return float(F.cross_entropy(logits[scored], labels[scored], label_smoothing=smoothing))


def ignored_labels(labels: Tensor, scored: Tensor) -> Tensor:
    """Labels with -100, which torch's loss leaves out, where nothing counts."""
    return labels.masked_fill(~scored, -100)


def flat_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Mean label-smoothed loss of logits (B, L, V) over all labels (B, L) but -100."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)
