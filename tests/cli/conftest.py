"""A small run for the tests of commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transformer.cli import train

SMALL = [
    *("data.num_train=60", "data.num_validation=4", "data.num_test=4", "tokenizer.vocab_size=300"),
    *("model.d_model=16", "model.num_heads=2", "model.d_ff=32", "batching.max_tokens_per_batch=600"),
    *("model.num_encoder_layers=1", "model.num_decoder_layers=1", "validation.num_generated=2"),
    *("scheduler.warmup_steps=2", "trainer.precision=32-true", "trainer.max_steps=2", "decoding.max_new_tokens=4"),
]


@pytest.fixture
def trained(run_command: Callable[..., Any]) -> Path:
    """The folder of a finished run of two steps; its name needs quotes everywhere."""
    result = run_command(train.main, *SMALL, "hydra.run.dir='runs/a run, no=1'")
    assert result.status == 0, result.err
    assert "Traceback" not in result.err
    return Path("runs/a run, no=1")
