"""What both tasks share: random numbers, the first weights, the reported loss."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from transformer.data.batches.pairs import mixed_seed
from transformer.training.checkpoints import load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.history import read_history
from transformer.training.parts import RunParts, build_parts
from transformer.training.run import train
from transformer.training.task import Task

Settings = Callable[..., dict[str, Any]]
QUIET = Console(quiet=True)


def parts_of(config: TrainConfig, folder: Path) -> RunParts:
    return build_parts(config, folder, lambda what, done, total: None)


def test_no_two_batches_share_a_seed() -> None:
    seeds = [mixed_seed(*key) for key in itertools.product(range(4), range(300), range(4))]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 1 << 63 for seed in seeds)


@pytest.mark.parametrize("kind", ["translation", "text"])
def test_the_seed_decides_everything(run_settings: Settings, tmp_path: Path, kind: str) -> None:
    def weights(name: str, **changes: Any) -> dict[str, torch.Tensor]:
        # The state of the global generators must not matter.
        torch.manual_seed(len(name))
        config = TrainConfig.from_plain(run_settings(kind, {"trainer.max_steps": 2, "model.dropout": 0.3, **changes}))
        train(config, tmp_path / name, QUIET)
        stored: dict[str, torch.Tensor] = load_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt")["state_dict"]
        return stored

    one, again, other = weights("one"), weights("again"), weights("another", seed=2)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_first_weights_do_not_depend_on_how_the_run_is_long(run_settings: Settings, tmp_path: Path) -> None:
    changes = ({"trainer.max_steps": 1}, {"trainer.max_steps": None, "trainer.max_epochs": 3})
    configs = [TrainConfig.from_plain(run_settings("text", change)) for change in changes]
    one, two = (parts_of(config, tmp_path / str(number)).task for number, config in enumerate(configs))
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True))


def test_the_training_loss_is_per_token_since_the_last_entry(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights stand still, so the mean over two steps is known from the two steps."""
    monkeypatch.setattr("transformer.training.task.rate_factor", lambda *_: lambda step: 0.0)
    found = {}
    for every in (1, 2):
        changes = {
            "trainer.max_steps": 4,
            "trainer.log_every_n_steps": every,
            "validation.every_n_steps": 4,
            "data.num_train": 90,
        }
        config = TrainConfig.from_plain(run_settings("translation", changes))
        train(config, tmp_path / str(every), QUIET)
        entries = read_history(tmp_path / str(every) / "metrics.jsonl")
        found[every] = [entry["train/loss"] for entry in entries if "train/loss" in entry]
    assert len(set(found[1])) == 4
    parts = parts_of(config, tmp_path / "1")
    batches = itertools.islice(parts.data.train_dataloader(), 4)
    tokens = [int(batch.scored_BT.sum()) for batch in batches]
    assert len(set(tokens)) > 1
    means = [
        sum(loss * count for loss, count in zip(found[1][at : at + 2], tokens[at : at + 2], strict=True))
        / sum(tokens[at : at + 2])
        for at in (0, 2)
    ]
    assert found[2] == pytest.approx(means, rel=1e-5)


def test_perplexity_follows_from_the_loss(run_settings: Settings, tmp_path: Path) -> None:
    result = train(TrainConfig.from_plain(run_settings("text")), tmp_path, QUIET)
    for entry in read_history(tmp_path / "metrics.jsonl"):
        if "validation/loss" in entry:
            assert entry["validation/perplexity"] == pytest.approx(math.exp(entry["validation/loss"]), rel=1e-5)
            bits = entry["validation/loss"] / math.log(2)  # one token a byte: the first of 180 has no prediction
            assert entry["validation/bits_per_byte"] == pytest.approx(bits * 179 / 180, rel=1e-5)
    assert result.best_value == entry["validation/loss"]


@pytest.mark.parametrize("kind", ["translation", "text"])
def test_the_validation_loss_does_not_depend_on_batches(run_settings: Settings, tmp_path: Path, kind: str) -> None:
    losses = []
    for budget in (160, 2000):
        changes = {"batching.max_tokens_per_batch": budget, "trainer.max_steps": 1, "label_smoothing": 0.3}
        config = TrainConfig.from_plain(run_settings(kind, changes))
        parts = parts_of(config, tmp_path / str(budget))
        task, data = parts.task.eval(), parts.data
        sums = [task.loss(batch) for batch in data.val_dataloader()]
        losses.append(float(sum(s.nll for s in sums)) / sum(int(s.num_tokens) for s in sums))
        assert all(torch.equal(s.loss, s.nll) for s in sums)  # no smoothing but in training
        smoothed = task.train().loss(next(iter(data.val_dataloader())))
        assert abs(smoothed.loss - smoothed.nll) > 0.1
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_bfloat16_with_clipping_and_a_fused_optimizer_stays_close_to_float32(
    run_settings: Settings, tmp_path: Path
) -> None:
    weights: dict[str, torch.Tensor] = {}
    for precision in ("32-true", "bf16-mixed"):
        changes = {"trainer.max_steps": 2, "trainer.precision": precision, "trainer.gradient_clip_val": 0.5}
        # With a large epsilon an update is as large as its gradient, not just of its sign.
        changes |= {"optimizer.eps": 1.0, "optimizer.learning_rate": 1.0}
        config = TrainConfig.from_plain(run_settings("text", changes))
        first = parts_of(config, tmp_path / precision).task.model.state_dict()
        train(config, tmp_path / precision, QUIET)
        stored = load_checkpoint(tmp_path / precision / "checkpoints" / "last.ckpt")
        assert all(group["fused"] for group in stored["optimizer_states"][0]["param_groups"])
        weights[precision] = torch.cat([(stored["state_dict"][f"model.{n}"] - first[n]).flatten() for n in first])
        assert weights[precision].isfinite().all()
    difference = (weights["bf16-mixed"] - weights["32-true"]).norm()
    assert 0 < difference < 0.05 * weights["32-true"].norm()


def test_what_is_clipped_is_the_gradient_of_the_loss_per_token(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"trainer.max_steps": 1, "trainer.accumulate_grad_batches": 2, "trainer.gradient_clip_val": 0.25}
    config = TrainConfig.from_plain(run_settings("translation", changes))
    parts = parts_of(config, tmp_path / "by hand")
    sums = [parts.task.loss(batch) for batch in itertools.islice(parts.data.train_dataloader(), 2)]
    (sum(s.loss for s in sums) / sum(int(s.num_tokens) for s in sums)).backward()
    expected = torch.cat([p.grad.flatten() for p in parts.task.parameters()]).norm().item()
    assert expected > 0.5
    norms = {}
    original = Task.configure_gradient_clipping

    def measuring(self: Task, optimizer: Any, gradient_clip_val: float | None, **named: Any) -> None:
        gradients = [p.grad.clone() for p in self.parameters()]
        tokens = self._window_tokens
        for limit in (None, gradient_clip_val):
            for p, gradient in zip(self.parameters(), gradients, strict=True):
                p.grad = gradient.clone()
            self._window_tokens = tokens
            self.guard.add(torch.tensor(1.0), torch.tensor(1))
            original(self, optimizer, limit, **named)
            norms[limit] = torch.cat([p.grad.flatten() for p in self.parameters()]).norm().item()

    monkeypatch.setattr(Task, "configure_gradient_clipping", measuring)
    train(config, tmp_path / "run", QUIET)
    assert norms == {None: pytest.approx(expected, rel=1e-4), 0.25: pytest.approx(0.25, rel=1e-4)}
