"""Learning-rate schedules as functions of the optimizer step. A new one is a function, its settings and an arm here."""

import logging
import math
from collections.abc import Callable
from typing import assert_never

from transformer.training.optimizer_config import (
    ConstantConfig,
    CosineConfig,
    InverseSqrtConfig,
    SchedulerConfig,
    WarmupStableDecayConfig,
)

log = logging.getLogger(__name__)


def rate_factor(config: SchedulerConfig, total_steps: int) -> Callable[[int], float]:
    """What update number s, counted from 1, multiplies the peak learning rate by.

    All schedules rise linearly from ``1 / warmup_steps`` at s = 1 to 1 at s = ``warmup_steps``: no update has rate 0.

    Args:
        config: the schedule.
        total_steps: updates of the whole run, for schedules that have an end.
    """
    warmup = config.warmup_steps
    if warmup > total_steps:
        log.warning(
            "`scheduler.warmup_steps` is %d, but the run has %d steps: the learning rate never reaches its peak.",
            warmup,
            total_steps,
        )

    def factor(step: int) -> float:
        if step <= warmup:
            return step / warmup
        match config:
            case InverseSqrtConfig():
                return math.sqrt(max(warmup, 1) / step)
            case CosineConfig(final_fraction=final):
                progress = min((step - warmup) / max(total_steps - warmup, 1), 1.0)
                return final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2
            case WarmupStableDecayConfig(decay_fraction=fraction):
                decay_steps = max(round(fraction * total_steps), 1)
                return min(1.0, max(total_steps + 1 - step, 0) / decay_steps)
            case ConstantConfig():
                return 1.0
            case _:
                assert_never(config)

    return factor
