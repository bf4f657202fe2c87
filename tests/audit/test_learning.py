"""Learning (D6): an untrained model is no evidence. It must overfit, and beat baselines on held-out data."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.loss import LossSum, cross_entropy

RecordProperty = Callable[[str, object], None]
DIGITS, BOS = 8, 8


@pytest.fixture(autouse=True)
def _float32(_float64_and_seed: None) -> None:
    torch.set_default_dtype(torch.float32)


def train(model: nn.Module, loss: Callable[[int], LossSum], steps: int, learning_rate: float) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps)
    for step in range(steps):
        sums = loss(step)
        optimizer.zero_grad()
        (sums.loss / sums.num_tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def mean(sums: LossSum) -> float:
    """Nats a token."""
    return (sums.nll / sums.num_tokens).item()


def unigram(train_ids: Tensor, test_ids: Tensor) -> float:
    """Nats a token of the training set's relative frequencies."""
    frequencies = torch.bincount(train_ids.flatten(), minlength=DIGITS) / train_ids.numel()
    return -frequencies.log()[test_ids].mean().item()


def test_d06_language_model_overfits(record_property: RecordProperty) -> None:
    config = DecoderOnlyConfig.from_plain(
        {"name": "decoder_only", "d_model": 32, "num_heads": 2, "num_layers": 2, "max_length": 12,
         "position": "learned", "dropout": 0.0}
    )  # fmt: skip
    model = DecoderOnly(config, 16)
    # The first token names the row, so every later token of these random rows can be known by heart.
    ids = torch.randint(0, 16, (16, 12))
    ids[:, 0] = torch.arange(16)
    scored = torch.ones(16, 11, dtype=torch.bool)

    def loss(_: int) -> LossSum:
        return cross_entropy(model.hidden(ids[:, :-1]).hidden_BLD, model.output.weight, ids[:, 1:], scored)

    untrained = mean(loss(0))
    train(model, loss, steps=200, learning_rate=5e-3)
    trained = mean(loss(0))
    record_property("overfit nats/token", {"untrained": untrained, "trained": trained})
    print(f"overfit: {untrained:.3f} nats/token untrained, {trained:.4f} trained")
    assert untrained > 2.5
    assert trained < 0.02


def reversals(count: int, excluded: set[tuple[int, ...]], generator: torch.Generator) -> Tensor:
    """Different rows of four digits, none of them among the excluded."""
    rows: dict[tuple[int, ...], None] = {}
    while len(rows) < count:
        row = tuple(torch.randint(0, DIGITS, (4,), generator=generator).tolist())
        if row not in excluded:
            rows[row] = None
    return torch.tensor(list(rows))


def test_d06_translation_gains_on_held_out_reversals(record_property: RecordProperty) -> None:
    generator = torch.Generator().manual_seed(1)
    held_out = reversals(200, set(), generator)
    training = reversals(1500, {tuple(row) for row in held_out.tolist()}, generator)
    config = EncoderDecoderConfig.from_plain(
        {"name": "encoder_decoder", "d_model": 32, "num_heads": 4, "max_length": 4,
         "num_encoder_layers": 1, "num_decoder_layers": 1, "dropout": 0.0}
    )  # fmt: skip
    model = EncoderDecoder(config, DIGITS + 1, DIGITS + 1)

    def loss_of(source: Tensor) -> LossSum:
        target = source.flip(1)
        inputs = torch.cat([torch.full((len(source), 1), BOS), target[:, :-1]], dim=1)
        hidden = model.decode(inputs, model.encode(source).memory_BSD).hidden_BTD
        return cross_entropy(hidden, model.output.weight, target, torch.ones_like(target, dtype=torch.bool))

    def batch(_: int) -> LossSum:
        return loss_of(training[torch.randint(0, len(training), (64,), generator=generator)])

    with torch.no_grad():
        untrained = mean(loss_of(held_out))
    train(model, batch, steps=400, learning_rate=5e-3)
    with torch.no_grad():
        trained, baseline = mean(loss_of(held_out)), unigram(training, held_out)
    record_property("held-out nats/token", {"untrained": untrained, "unigram": baseline, "trained": trained})
    print(f"held-out: {untrained:.3f} nats/token untrained, {baseline:.3f} unigram, {trained:.4f} trained")
    assert trained < 0.25 * baseline
    assert trained < 0.25 * untrained
