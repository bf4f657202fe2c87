"""Learning-rate schedules, value by value."""

import logging

import pytest

from transformer.training.optimizer_config import (
    ConstantConfig,
    CosineConfig,
    InverseSqrtConfig,
    SchedulerConfig,
    WarmupStableDecayConfig,
)
from transformer.training.schedules import rate_factor

KINDS: list[SchedulerConfig] = [
    ConstantConfig(name="constant", warmup_steps=4),
    CosineConfig(name="cosine", warmup_steps=4),
    InverseSqrtConfig(name="inverse_sqrt", warmup_steps=4),
    WarmupStableDecayConfig(name="warmup_stable_decay", warmup_steps=4),
]


@pytest.mark.parametrize("config", KINDS, ids=lambda config: config.name)
def test_warm_up_rises_from_its_first_step_to_the_peak(config: SchedulerConfig) -> None:
    factor = rate_factor(config, 100)
    assert [factor(step) for step in range(1, 5)] == [0.25, 0.5, 0.75, 1.0]
    assert all(0 <= factor(step) <= 1 for step in range(1, 200))


@pytest.mark.parametrize("config", KINDS, ids=lambda config: config.name)
def test_without_warm_up_the_first_step_is_near_the_peak(config: SchedulerConfig) -> None:
    assert rate_factor(config.model_copy(update={"warmup_steps": 0}), 1000)(1) == pytest.approx(1, abs=1e-4)


def test_constant() -> None:
    factor = rate_factor(ConstantConfig(name="constant", warmup_steps=1), 10)
    assert [factor(step) for step in (1, 5, 10, 99)] == [1, 1, 1, 1]


def test_inverse_square_root() -> None:
    factor = rate_factor(InverseSqrtConfig(name="inverse_sqrt", warmup_steps=9), 100)
    assert [factor(9), factor(36), factor(81)] == pytest.approx([1, 1 / 2, 1 / 3])


def test_cosine_ends_at_its_fraction() -> None:
    factor = rate_factor(CosineConfig(name="cosine", warmup_steps=10, final_fraction=0.2), 110)
    assert [factor(10), factor(60), factor(110), factor(500)] == pytest.approx([1, 0.6, 0.2, 0.2])
    to_nothing = rate_factor(CosineConfig(name="cosine", final_fraction=0.0), 100)
    assert to_nothing(25) == pytest.approx(0.8535533906)  # (1 + cos 45°) / 2
    assert to_nothing(100) == pytest.approx(0, abs=1e-15)


def test_warmup_stable_decay() -> None:
    config = WarmupStableDecayConfig(name="warmup_stable_decay", warmup_steps=10, decay_fraction=0.2)
    factor = rate_factor(config, 100)
    assert [factor(10), factor(50), factor(80)] == [1, 1, 1]
    # The last update still moves the weights: 1/20 of the peak for a decay of 20 steps.
    assert [factor(81), factor(86), factor(91), factor(100)] == pytest.approx([1, 0.75, 0.5, 0.05])
    assert factor(150) == 0


def test_a_warm_up_longer_than_the_run_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        factor = rate_factor(InverseSqrtConfig(name="inverse_sqrt", warmup_steps=10), 5)
    assert "`scheduler.warmup_steps` is 10, but the run has 5 steps" in caplog.text
    assert [factor(1), factor(5)] == [0.1, 0.5]
