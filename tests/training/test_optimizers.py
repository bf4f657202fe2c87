"""Which parameters an optimizer gets, and with which settings."""

import pytest
import torch
from torch import nn

from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.training.optimizer_config import AdamWConfig
from transformer.training.optimizers import build_optimizer, decay_groups

SIZE = {"d_model": 8, "num_heads": 2, "d_ff": 12, "max_length": 6}


def model(tied: bool) -> nn.Module:
    config = DecoderOnlyConfig(
        name="decoder_only", num_layers=1, position="learned", norm="layer_norm", tie_embeddings=tied, **SIZE
    )
    return DecoderOnly(config, 10)


@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_once_and_only_matrices_decay(tied: bool) -> None:
    built = model(tied)
    decayed, kept = decay_groups(built, 0.1)
    names = {id(parameter): name for name, parameter in built.named_parameters()}
    grouped = [names[id(p)] for group in (decayed, kept) for p in group["params"]]
    assert sorted(grouped) == sorted(names.values())
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
    assert all(p.dim() == 2 for p in decayed["params"])
    decayed_names = {names[id(p)] for p in decayed["params"]}
    assert not any("embedding" in name or "position" in name or "bias" in name for name in decayed_names)
    assert ("output.weight" in decayed_names) == (not tied)
    assert any("bias" in names[id(p)] for p in kept["params"])


def test_all_embeddings_of_a_translation_model_are_kept_from_decay() -> None:
    config = EncoderDecoderConfig(
        name="encoder_decoder", num_encoder_layers=1, num_decoder_layers=1, tie_embeddings="none", **SIZE
    )
    built = EncoderDecoder(config, 10, 11)
    decayed, _ = decay_groups(built, 0.1)
    shapes = [tuple(p.shape) for p in decayed["params"]]
    assert (10, 8) not in shapes  # the source embedding
    assert shapes.count((11, 8)) == 1  # the output projection, not the target embedding of the same shape


def test_a_model_without_matrices_has_one_group() -> None:
    assert len(decay_groups(nn.LayerNorm(4), 0.1)) == 1


@pytest.mark.parametrize("fused", [True, False])
def test_the_settings_of_adamw(fused: bool) -> None:
    config = AdamWConfig(name="adamw", learning_rate=0.5, betas=(0.7, 0.8), eps=1e-3, weight_decay=0.2)
    optimizer = build_optimizer(config, model(True), fused=fused)
    assert isinstance(optimizer, torch.optim.AdamW)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.2, 0.0]
    for group in optimizer.param_groups:
        assert (group["lr"], group["betas"], group["eps"], group["fused"]) == (0.5, (0.7, 0.8), 1e-3, fused)


def test_a_first_step_by_hand() -> None:
    """Adam's first step is the learning rate times the sign of the gradient; decay shrinks the weight itself first."""
    layer = nn.Linear(1, 1, bias=True)
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(2.0)
    config = AdamWConfig(name="adamw", learning_rate=0.1, eps=1e-12, weight_decay=0.5)
    optimizer = build_optimizer(config, layer, fused=False)
    (layer.weight.sum() * 3 - layer.bias.sum() * 7).backward()
    optimizer.step()
    assert layer.weight.item() == pytest.approx(2 * (1 - 0.1 * 0.5) - 0.1, abs=1e-6)
    assert layer.bias.item() == pytest.approx(2 + 0.1, abs=1e-6)
