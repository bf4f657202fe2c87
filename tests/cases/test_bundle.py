"""Reported faults of saving and loading models, by the id of their case: the part of bundles."""

import json
import os
import pickle
import string

import pytest
import torch
from safetensors.torch import load_file, save_file

from transformer.bundle import load_bundle, load_weights, save_bundle
from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.training.optimizer_config import AdamWConfig
from transformer.training.optimizers import build_optimizer

TIED = ["embedding.weight", "output.weight"]
# With the four special tokens: a vocabulary of exactly 100.
CHARACTERS = string.ascii_letters + string.digits + "".join(chr(code) for code in range(0x400, 0x400 + 34))
IDS = torch.tensor([[5, 6, 7, 99]])


def _model(*, tied, seed=0, vocab_size=100):
    torch.manual_seed(seed)
    config = DecoderOnlyConfig(
        name="decoder_only", num_layers=1, d_model=8, num_heads=2, max_length=8, dropout=0.0, tie_embeddings=tied
    )
    return DecoderOnly(config, vocab_size).eval()


def _num_embedding_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters() if parameter.shape == (100, 8))


def _write(path, model, *, without=(), extra=None):
    tensors = {name: tensor.detach().clone() for name, tensor in model.named_parameters()} | (extra or {})
    save_file({name: tensor for name, tensor in tensors.items() if name not in without}, path)


def test_CKPT_01_tied_parameters_count_once():
    assert _num_embedding_parameters(_model(tied=True)) == 800
    assert _num_embedding_parameters(_model(tied=False)) == 1600
    tied = _model(tied=True)
    optimizer = build_optimizer(AdamWConfig(name="adamw", learning_rate=0.1), tied, fused=False)
    listed = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert sum(parameter is tied.embedding.weight for parameter in listed) == 1
    assert len(listed) == len({id(parameter) for parameter in listed}) == len(list(tied.parameters()))


def test_CKPT_01_saved_loaded_and_trained_the_tied_tensor_stays_one(tiny_bundle, tmp_path):
    bundle = tiny_bundle("decoder_only", characters=CHARACTERS, d_model=8, tie_embeddings=True)
    assert _num_embedding_parameters(bundle.model) == 800
    save_bundle(tmp_path, bundle, "card")
    assert [name for name in load_file(tmp_path / "model.safetensors") if name in TIED] == ["embedding.weight"]
    loaded = load_bundle(tmp_path).model
    assert torch.equal(loaded(IDS), bundle.model(IDS))
    assert loaded.output.weight is loaded.embedding.weight
    assert _num_embedding_parameters(loaded) == 800
    before = loaded.embedding.weight.detach().clone()
    optimizer = build_optimizer(AdamWConfig(name="adamw", learning_rate=0.1), loaded, fused=False)
    loaded(IDS).square().mean().backward()
    optimizer.step()
    assert loaded.output.weight is loaded.embedding.weight
    assert not torch.equal(loaded.embedding.weight, before)


@pytest.mark.parametrize("stored_as", ["embedding.weight", "output.weight", "both"])
def test_CKPT_01_a_tied_tensor_may_stand_under_either_name_or_both(tmp_path, stored_as):
    saved, loaded = _model(tied=True, seed=1), _model(tied=True, seed=2)
    assert not torch.equal(saved(IDS), loaded(IDS))
    weight = saved.embedding.weight.detach().clone()
    without = [name for name in TIED if stored_as not in (name, "both")]
    _write(tmp_path / "weights", saved, without=without, extra={"output.weight": weight})
    load_weights(loaded, tmp_path / "weights")
    assert torch.equal(saved(IDS), loaded(IDS))
    assert loaded.output.weight is loaded.embedding.weight


def test_CKPT_01_without_any_of_its_names_a_tied_tensor_is_missing(tmp_path):
    _write(tmp_path / "weights", _model(tied=True), without=TIED)
    with pytest.raises(ValueError, match=r"lacks `embedding.weight`, which the model needs"):
        load_weights(_model(tied=True), tmp_path / "weights")


def test_CKPT_01_a_tied_file_does_not_fill_an_untied_model(tmp_path):
    _write(tmp_path / "weights", _model(tied=True))
    with pytest.raises(ValueError, match=r"lacks `output.weight`, which the model needs"):
        load_weights(_model(tied=False), tmp_path / "weights")


def test_CKPT_01_an_untied_file_does_not_fill_a_tied_model(tmp_path):
    _write(tmp_path / "weights", _model(tied=False))
    with pytest.raises(
        ValueError, match=r"`embedding.weight` and `output.weight` are tied in the model, but differ in"
    ):
        load_weights(_model(tied=True), tmp_path / "weights")


def test_CKPT_01_three_names_of_one_tensor(tmp_path):
    def model(seed):
        torch.manual_seed(seed)
        config = EncoderDecoderConfig(
            name="encoder_decoder", num_encoder_layers=1, num_decoder_layers=1, d_model=8, num_heads=2, max_length=8
        )
        return EncoderDecoder(config, 100, 100).eval()

    saved, loaded = model(1), model(2)
    assert _num_embedding_parameters(saved) == 800
    names = ["source_embedding.weight", "target_embedding.weight", "output.weight"]
    for kept in names:
        weight = saved.output.weight.detach().clone()
        _write(tmp_path / kept, saved, without=set(names) - {kept}, extra={kept: weight})
        load_weights(loaded, tmp_path / kept)
        assert torch.equal(saved(IDS, IDS), loaded(IDS, IDS))
        assert loaded.source_embedding.weight is loaded.target_embedding.weight is loaded.output.weight


class _Malicious:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def folder(tiny_bundle, tmp_path):
    save_bundle(tmp_path / "bundle", tiny_bundle("decoder_only"), "card")
    return tmp_path / "bundle"


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
@pytest.mark.parametrize("write", ["pickle", "torch"])
def test_CKPT_06_b_a_pickle_is_refused_and_not_executed(folder, tmp_path, file, write):
    marker = tmp_path / "marker"
    if write == "pickle":
        (folder / file).write_bytes(pickle.dumps(_Malicious(marker)))
    else:
        torch.save({"state_dict": _Malicious(marker)}, folder / file)
    with pytest.raises(ValueError, match=file):
        load_bundle(folder)
    assert not marker.exists()
    pickle.loads(pickle.dumps(_Malicious(marker)))
    assert marker.exists()  # it would have been made


@pytest.mark.parametrize("kept", [0, 4, 100, -1])
def test_CKPT_06_c_truncated_weights_are_refused_with_their_path(folder, kept):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"bundle.model\.safetensors is not a readable safetensors file"):
        load_bundle(folder)


def test_CKPT_06_d_a_text_in_place_of_weights_is_refused_with_its_path(folder):
    (folder / "model.safetensors").write_text("These are not the weights you are looking for.\n")
    with pytest.raises(ValueError, match=r"bundle.model\.safetensors is not a readable safetensors file"):
        load_bundle(folder)


def test_TOK_04_a_a_tokenizer_of_101_ids_with_a_model_of_100_rows(tiny_bundle, tmp_path):
    bundle = tiny_bundle("decoder_only", characters=CHARACTERS)
    assert bundle.model.vocab_size == 100
    save_bundle(tmp_path, bundle, "card")
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["model"]["vocab"]["!"] = 100
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(ValueError, match=r"`embedding.weight` must have shape \(101, 16\), but has \(100, 16\) in"):
        load_bundle(tmp_path)


def test_TOK_04_a_an_id_beyond_the_model_is_refused_naming_both_numbers():
    with pytest.raises(ValueError, match=r"from 0 to 99 \(a vocabulary of 100\), but range from 3 to 100"):
        _model(tied=True)(torch.tensor([[3, 100]]))
