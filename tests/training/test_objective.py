"""R-Drop as both tasks train with it, against plain torch on the same two passes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor

from transformer.data.batches.collate import TextBatch, TranslationBatch, collate_texts, collate_translation
from transformer.data.batches.documents import Documents
from transformer.data.batches.packing import collate_packed_pairs, collate_packed_texts
from transformer.data.subwords.config import CharConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.loss import LossSum
from transformer.training.config import TrainConfig
from transformer.training.history import read_history
from transformer.training.language_model import LanguageModelTask
from transformer.training.objective import passes
from transformer.training.run import train
from transformer.training.translation import TranslationTask

Settings = Callable[..., dict[str, Any]]
VOCAB, ALPHA, SMOOTHING = 30, 3.0, 0.1
CHANGES = {"r_drop": ALPHA, "label_smoothing": SMOOTHING, "model.dropout": 0.4}
SPECIAL = {"pad_id": 0, "bos_id": 1, "eos_id": 2}
PAIRS = [(0, [5, 6, 7], [8, 9]), (1, [10], [11, 12, 13, 14]), (2, [15, 16], [])]
TEXTS = [(0, [5, 6, 7]), (1, [8, 9, 10, 11, 12]), (2, [13, 14])]


def translation_task(config: TrainConfig) -> TranslationTask:
    torch.manual_seed(0)
    assert config.model.name == "encoder_decoder"
    model = EncoderDecoder(config.model, VOCAB, VOCAB).double()
    return TranslationTask(config, model, Tokenizer.train(CharConfig(), ["ab"]), [])


def text_task(config: TrainConfig) -> LanguageModelTask:
    torch.manual_seed(0)
    assert config.model.name == "decoder_only"
    model = DecoderOnly(config.model, VOCAB).double()
    return LanguageModelTask(config, model, Tokenizer.train(CharConfig(), ["ab"]), Documents([[1, 2]], 1), 1)


class Case(NamedTuple):
    """A task, its batch, and that batch read twice by the task's model."""

    task: TranslationTask | LanguageModelTask
    batch: Any
    logits: Callable[[], Tensor]
    labels: Tensor
    scored: Tensor

    def loss(self, seed: int) -> LossSum:
        torch.manual_seed(seed)
        return self.task.loss(self.batch)


def twice(*tensors: Tensor | None) -> list[Tensor | None]:
    return [None if tensor is None else tensor.repeat(2, 1) for tensor in tensors]


@pytest.fixture(params=["translation", "translation packed", "text", "text packed"])
def case(request: pytest.FixtureRequest, run_settings: Settings) -> Case:
    kind, _, packed = str(request.param).partition(" ")
    config = TrainConfig.from_plain(run_settings(kind, CHANGES))
    if kind == "translation":
        translation = translation_task(config)
        pairs: TranslationBatch = (
            collate_packed_pairs([PAIRS[:2], PAIRS[2:]], 9, **SPECIAL)
            if packed
            else collate_translation(PAIRS, **SPECIAL)
        )

        def translated() -> Tensor:
            model = translation.model
            source, mask, source_segments = twice(pairs.source_BS, pairs.source_mask_BS, pairs.source_segments_BS)
            target, target_segments = twice(pairs.target_BT, pairs.target_segments_BT)
            mask = None if packed else mask
            assert source is not None
            assert target is not None
            memory = model.encode(source, mask, segments_BS=source_segments).memory_BSD
            decoded = model.decode(
                target, memory, mask, source_segments_BS=source_segments, target_segments_BT=target_segments
            )
            return model.output(decoded.hidden_BTD)  # type: ignore[no-any-return]

        return Case(translation, pairs, translated, pairs.labels_BT, pairs.scored_BT)
    language = text_task(config)
    texts: TextBatch = collate_packed_texts([TEXTS[:2], TEXTS[2:]], 8, pad_id=0) if packed else collate_texts(TEXTS, 0)

    def continued() -> Tensor:
        tokens, segments = twice(texts.tokens_BL, texts.segments_BL)
        assert tokens is not None
        return language.model.output(language.model.hidden(tokens, segments_BL=segments).hidden_BLD)  # type: ignore[no-any-return]

    return Case(language, texts, continued, texts.labels_BL, texts.scored_BL)


def test_training_compares_two_passes_with_dropout_of_their_own(case: Case) -> None:
    case.task.train()
    found = case.loss(seed=7)
    found.loss.backward()
    own = [parameter.grad.clone() for parameter in case.task.model.parameters() if parameter.grad is not None]
    case.task.model.zero_grad()
    torch.manual_seed(7)
    both_passes = case.logits().unflatten(0, (2, -1))[:, case.scored]
    assert (both_passes[0] - both_passes[1]).abs().min() > 0
    labels = case.labels[case.scored]
    both = labels.repeat(2)
    nll = F.cross_entropy(both_passes.flatten(0, 1), both, reduction="sum") / 2
    smoothed = F.cross_entropy(both_passes.flatten(0, 1), both, reduction="sum", label_smoothing=SMOOTHING) / 2
    first, second = both_passes.softmax(-1)
    symmetric = (first * (first / second).log()).sum() + (second * (second / first).log()).sum()
    expected = smoothed + ALPHA * symmetric / 4
    expected.backward()
    assert float(found.loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-10)
    assert float(found.nll) == pytest.approx(float(nll.detach()), rel=1e-10)
    assert int(found.num_tokens) == int(case.scored.sum())  # each once
    again = [parameter.grad for parameter in case.task.model.parameters() if parameter.grad is not None]
    assert len(again) == len(own) > 0
    for one, other in zip(own, again, strict=True):
        assert torch.allclose(one, other, rtol=1e-8, atol=1e-10)


def test_validation_is_that_of_one_pass(case: Case) -> None:
    case.task.eval()
    assert passes(case.batch, case.task.config, training=False) is case.batch
    found = case.loss(seed=7)
    logits = case.logits().unflatten(0, (2, -1))[0][case.scored]
    expected = F.cross_entropy(logits, case.labels[case.scored], reduction="sum")
    assert float(found.loss.detach()) == float(found.nll) == pytest.approx(float(expected.detach()), rel=1e-10)
    assert int(found.num_tokens) == int(case.scored.sum())


def test_a_run_with_it_learns(run_settings: Settings, tmp_path: Path) -> None:
    changes = CHANGES | {"model.dropout": 0.1, "trainer.max_steps": 30, "validation.every_n_steps": 30}
    train(TrainConfig.from_plain(run_settings("text", changes)), tmp_path, Console(quiet=True))
    losses = [entry["train/loss"] for entry in read_history(tmp_path / "metrics.jsonl") if "train/loss" in entry]
    assert len(losses) == 30
    assert losses[-1] < losses[0] - 0.5  # per token, of one pass: from about log(259)
    assert 5 < losses[0] < 7
