"""The comparison of recipes on Tiny Shakespeare: schedules, and the loss over a whole split."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from transformer.models.config import DecoderOnlyConfig
from transformer.models.decoder_only import DecoderOnly

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)


def test_nanogpts_schedule_ends_at_a_tenth_and_the_tuned_one_at_zero():
    module = import_module("lm_quality_benchmark")
    cosine, linear = module.cosine, module.linear
    assert [cosine(2000, 0), cosine(2000, 99)] == pytest.approx([1e-3 / 101, 1e-3 * 100 / 101])
    assert [cosine(2000, 100), cosine(2000, 1050), cosine(2000, 2000)] == pytest.approx([1e-3, 5.5e-4, 1e-4])
    assert [linear(2000, 0), linear(2000, 99)] == pytest.approx([3e-3 / 101, 3e-3 * 100 / 101])
    assert [linear(2000, 100), linear(2000, 1050), linear(2000, 2000)] == pytest.approx([3e-3, 1.5e-3, 0])


@pytest.mark.parametrize("length", [65, 200, 6500])
def test_every_character_but_the_first_is_scored_once_in_windows_of_64(length):
    torch.manual_seed(0)
    config = DecoderOnlyConfig(
        name="decoder_only", num_layers=1, d_model=8, num_heads=2, max_length=64, activation="gelu", bias=False,
        dropout=0.0,
    )  # fmt: skip
    ours = DecoderOnly(config, 11)
    torch.nn.init.normal_(ours.embedding.weight)
    ids = np.random.default_rng(0).integers(11, size=length).astype(np.uint16)
    tokens = torch.from_numpy(ids.astype(np.int64))
    losses = []
    with torch.no_grad():
        for start in range(0, length - 1, 64):
            window = tokens[start : start + 65]
            losses += F.cross_entropy(ours.eval()(window[None, :-1])[0], window[1:], reduction="none").tolist()
    assert len(losses) == length - 1
    validation_loss = import_module("lm_quality_benchmark").validation_loss
    nano = import_module("peers.nano_gpt").NanoGpt(ours)
    assert validation_loss(nano, ids) == pytest.approx(sum(losses) / len(losses), rel=1e-5)
