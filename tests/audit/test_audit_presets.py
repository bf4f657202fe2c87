"""The project's own models pass every check that applies: all presets, and settings that presets do not have."""

from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from transformer.audit.project import audited
from transformer.audit.run import audit
from transformer.cli.compose import config_folder
from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder

PRESETS = sorted(path.stem for path in (config_folder() / "model").glob("*.yaml"))
# In full these take minutes; all else about them stays.
SHRUNK: dict[str, dict[str, Any]] = {
    "lm_small": {"num_layers": 2, "d_model": 96, "d_ff": 384},
    "transformer_base": {"num_encoder_layers": 2, "num_decoder_layers": 2, "d_model": 64, "d_ff": 256},
    "transformer_big": {"num_encoder_layers": 2, "num_decoder_layers": 2, "d_model": 128, "d_ff": 512},
    "transformer_small": {"num_encoder_layers": 2, "num_decoder_layers": 2, "d_model": 64, "d_ff": 256},
}
NO_SOURCE = {"source seen", "encoder leak", "source padded right", "source padded left"}
SMALL = {"d_model": 16, "num_heads": 4, "max_length": 24, "d_ff": 32}
LM, TRANSLATION = {"num_layers": 2}, {"num_encoder_layers": 1, "num_decoder_layers": 2}
VARIANTS: dict[str, dict[str, Any]] = {
    "alibi": {"name": "decoder_only", **LM, "position": "alibi", "sliding_window": 3},
    "no positions": {"name": "decoder_only", **LM, "position": "none", "num_kv_heads": 1, "activation": "relu_squared"},
    "zero outputs": {"name": "decoder_only", **LM, "zero_outputs": True, "tie_embeddings": False, "qk_norm": True},
    "sandwich": {"name": "encoder_decoder", **TRANSLATION, "norm_position": "post", "embedding_norm": True},
    "separate": {"name": "encoder_decoder", **TRANSLATION, "tie_embeddings": "none", "layer_dropout": 0.2},
}


@pytest.fixture(autouse=True)
def _float32() -> None:
    torch.set_default_dtype(torch.float32)  # tests/audit runs under float64, and puts it back


def model_of(plain: dict[str, Any], vocab_size: int) -> DecoderOnly | EncoderDecoder:
    if plain["name"] == "decoder_only":
        return DecoderOnly(DecoderOnlyConfig.from_plain(plain), vocab_size)
    source_size = vocab_size + (7 if plain.get("tie_embeddings") == "none" else 0)
    return EncoderDecoder(EncoderDecoderConfig.from_plain(plain), source_size, vocab_size)


def check(plain: dict[str, Any], vocab_size: int, absent: set[str]) -> tuple[str, ...]:
    report = audit(audited(model_of(plain, vocab_size), pad_id=3, fresh=True))
    assert [(row.name, row.sentence, row.measured, row.tolerance) for row in report.failures] == []
    assert {row.name for row in report.rows if row.status == "not applicable"} == absent
    return report.notes


def test_every_shrunk_preset_is_one() -> None:
    assert set(SHRUNK) < set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_preset_passes(name: str) -> None:
    plain: Any = OmegaConf.to_container(OmegaConf.load(config_folder() / "model" / f"{name}.yaml"))
    absent = set(NO_SOURCE) if plain["name"] == "decoder_only" else set()
    if plain.get("dropout") == 0.0:
        absent.add("dropout on")
    notes = check(plain | SHRUNK.get(name, {}), 300, absent)
    assert "ids are drawn at random; 16 of 300 labels were tried" in notes


@pytest.mark.parametrize("name", VARIANTS)
def test_other_settings_pass(name: str) -> None:
    plain = VARIANTS[name] | SMALL
    absent = set(NO_SOURCE) if plain["name"] == "decoder_only" else set()
    if plain.get("tie_embeddings") in (False, "none"):
        absent.add("weights tied")
    notes = check(plain, 40, absent)
    woken = [note for note in notes if "start at zero" in note]
    assert len(woken) == (name == "zero outputs")
    if woken:
        assert woken[0].startswith("`layers.0.self_attention.output.weight` and 4 more start at zero")
